"""Accept a turn: check everything, write once, wake the runner.

The order is the design's: a replayed idempotency key answers first and spends nothing; then the parent, the count of the
prompt, the gateway's word, and at last one transaction. A turn that was accepted is never shed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from antiphon.core.errors import (
    Draining,
    FieldFault,
    HighDemand,
    InvalidRequest,
    MessageTooLarge,
    NoCapacity,
    ParentStreaming,
    Refused,
)
from antiphon.core.generation import TurnParams
from antiphon.core.ids import ConversationId, GenerationId, IdKind, MessageId
from antiphon.core.messages import Conversation, Message, MessageStatus, Role
from antiphon.core.plans import Plan
from antiphon.core.telemetry import TURNS
from antiphon.core.tenancy import Principal
from antiphon.engines.base import Tokenizer
from antiphon.inference.admission import Shed
from antiphon.inference.fleet import PoolStatus
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.prompt import output_tokens, plan_prompt
from antiphon.orchestrator.runner import Runner
from antiphon.stores.conversations.base import Owner
from antiphon.stores.generations.base import (
    Accepted,
    ContinueMessage,
    CurrentLeaf,
    IdempotencyKey,
    NewUserMessage,
    RegenerateUnder,
    TurnToAccept,
)

MESSAGE_BYTES = 256_000
"""The largest message, in UTF-8."""

_SHORT_TEXT = 2_000
_STOPPED_WITHIN_S = 2.0
_STOP_MAY_FOLLOW_S = 0.25
_KINDS = {NewUserMessage: "send", RegenerateUnder: "regenerate", ContinueMessage: "continue"}
_PARENT_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class SendMessage:
    """A message from a person, or with ``content`` ``None`` another answer under the user message ``parent``."""

    conversation_id: ConversationId
    content: str | None
    parent: MessageId | None | CurrentLeaf
    model: str | None
    params: TurnParams
    idempotency_key: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ContinueRequest:
    """Go on writing an assistant message that was cut short."""

    message_id: MessageId
    params: TurnParams
    idempotency_key: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True)
class _Question:
    """What is to be answered: ``text`` under ``earlier``, of which ``shown`` is written already."""

    what: NewUserMessage | RegenerateUnder | ContinueMessage
    earlier: Sequence[Message]
    text: str
    shown: str = ""
    continues: GenerationId | None = None


class TurnDesk:
    """Where turns come in."""

    def __init__(self, ports: Ports, runner: Runner) -> None:
        self._ports = ports
        self._runner = runner
        self._commits: set[asyncio.Task[Accepted]] = set()

    async def send(self, principal: Principal, request: SendMessage) -> Accepted:
        """Accept a message. When it returns, the turn is durable and will be answered.

        Raises ``MessageTooLarge``, ``InvalidRequest``, ``NotFound``, ``ParentStreaming``, ``IdempotencyMismatch``,
        ``ModelGone``, ``Forbidden``, ``PromptTooLong``, ``HighDemand``, ``NoCapacity``, ``Draining``, ``StoreUnavailable``,
        ``DiskFull``; then nothing was written.
        """
        plan = self._ports.plan(principal.plan)
        _check_content(request)
        _check_params(request.params, plan)
        key = self._key(principal, f"POST /v1/conversations/{request.conversation_id}/messages", request)
        return await self._once(key, lambda: self._send(principal, request, plan, key))

    async def _send(self, principal: Principal, request: SendMessage, plan: Plan, key: IdempotencyKey | None) -> Accepted:
        owner = Owner(principal.tenant_id, principal.user_id)
        conversation = await self._ports.conversations.get(owner, request.conversation_id)
        pool = self._ports.gateway.resolve(request.model or conversation.model, plan.models)
        question = await self._question(owner, conversation, request)
        return await self._accept(principal, conversation.id, question, pool, request.params, key)

    async def continue_message(self, principal: Principal, request: ContinueRequest) -> Accepted:
        """Accept a *Continue*. Raises what ``send`` raises."""
        plan = self._ports.plan(principal.plan)
        _check_params(request.params, plan)
        key = self._key(principal, f"POST /v1/messages/{request.message_id}/continue", request)
        return await self._once(key, lambda: self._continue(principal, request, plan, key))

    async def _continue(self, principal: Principal, request: ContinueRequest, plan: Plan, key: IdempotencyKey | None) -> Accepted:
        owner = Owner(principal.tenant_id, principal.user_id)
        message = await self._settled(owner, await self._ports.conversations.message(owner, request.message_id))
        pool = self._ports.gateway.resolve(await self._pool_of(owner, message), plan.models)
        branch: Sequence[Message] = ()
        if message.parent_id is not None:
            branch = await self._ports.conversations.branch(owner, message.conversation_id, message.parent_id)
        question = _Question(
            what=ContinueMessage(message.id),
            earlier=branch[:-1],
            text=branch[-1].content if branch else "",
            shown=message.content,
            continues=message.generation_id,
        )
        return await self._accept(principal, message.conversation_id, question, pool, request.params, key)

    async def _pool_of(self, owner: Owner, message: Message) -> str | None:
        """Whose model wrote the message: the pool itself where a generation of ours did, else by the model's name."""
        if message.generation_id is None:
            return message.model
        return (await self._ports.generations.get(owner, message.generation_id)).pool or message.model

    def _key(self, principal: Principal, route: str, request: SendMessage | ContinueRequest) -> IdempotencyKey | None:
        """The fingerprint covers the concrete route too: one key on two conversations is two requests."""
        if request.idempotency_key is None:
            return None
        method_and_kind = "continue" if isinstance(request, ContinueRequest) else "send"
        return IdempotencyKey(
            scope=f"{principal.tenant_id}:{principal.user_id}:{method_and_kind}",
            key=request.idempotency_key,
            fingerprint=hashlib.sha256(f"{route}\n{request.fingerprint}".encode()).hexdigest(),
            expires_at=self._ports.clock.now() + timedelta(seconds=self._ports.timing.idempotency_seconds),
        )

    async def _once(self, key: IdempotencyKey | None, accept: Callable[[], Awaitable[Accepted]]) -> Accepted:
        """The turn this key made before, else what ``accept`` makes. Raises ``Draining`` where none is taken any more.

        An equal request may have come first while this one was checked, and be the very reason for its refusal.
        """
        replay = await self._replay(key)
        if replay is not None:
            return replay
        if self._runner.draining:
            raise Draining
        try:
            return await accept()
        except Refused:
            replay = await self._replay(key)
            if replay is None:
                raise
            return replay

    async def _replay(self, key: IdempotencyKey | None) -> Accepted | None:
        return None if key is None else await self._ports.generations.find_replay(key, now=self._ports.clock.now())

    async def _question(self, owner: Owner, conversation: Conversation, request: SendMessage) -> _Question:
        parent = conversation.current_leaf_id if isinstance(request.parent, CurrentLeaf) else request.parent
        branch: Sequence[Message] = ()
        if parent is not None:
            branch = await self._ports.conversations.branch(owner, conversation.id, parent)
            branch = (*branch[:-1], await self._settled(owner, branch[-1]))
        if request.content is None:
            if not branch or branch[-1].role is not Role.USER:
                raise InvalidRequest([FieldFault("content", "Content may be null only under a user message.")])
            return _Question(RegenerateUnder(branch[-1].id), branch[:-1], branch[-1].content)
        message_id = MessageId(self._ports.ids.new(IdKind.MESSAGE))
        return _Question(NewUserMessage(message_id, request.parent, request.content, None), branch, request.content)

    async def _settled(self, owner: Owner, message: Message) -> Message:
        """The message once nobody writes it any more, so that stop-then-send always works.

        One that is being stopped is awaited for two seconds; for a quarter of one, a stop may still be on its way here.
        Raises ``ParentStreaming``.
        """
        if message.status is not MessageStatus.STREAMING:
            return message
        stop_may_follow = self._ports.clock.monotonic() + _STOP_MAY_FOLLOW_S
        try:
            async with asyncio.timeout(_STOPPED_WITHIN_S):
                while message.status is MessageStatus.STREAMING and message.generation_id is not None:
                    generation = await self._ports.generations.get(owner, message.generation_id)
                    stopping = generation.cancel_requested or generation.status.terminal
                    if not stopping and self._ports.clock.monotonic() >= stop_may_follow:
                        raise ParentStreaming
                    await asyncio.sleep(_PARENT_POLL_S)
                    message = await self._ports.conversations.message(owner, message.id)
        except TimeoutError:
            raise ParentStreaming from None
        return message

    async def _accept(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        question: _Question,
        pool: PoolStatus,
        params: TurnParams,
        key: IdempotencyKey | None,
    ) -> Accepted:
        plan = self._ports.plan(principal.plan)
        question = await self._admitted(question, pool, params, plan)
        turn = TurnToAccept(
            owner=Owner(principal.tenant_id, principal.user_id),
            conversation_id=conversation_id,
            what=question.what,
            message_id=MessageId(self._ports.ids.new(IdKind.MESSAGE)),
            generation_id=GenerationId(self._ports.ids.new(IdKind.GENERATION)),
            model=pool.model,
            requested_model=pool.model,
            params=params,
            plan=plan.name,
            key_id=principal.key_id,
            idempotency=key,
            now=self._ports.clock.now(),
            pool=pool.name,
        )
        commit = asyncio.create_task(self._commit(turn, question.continues))
        self._commits.add(commit)
        commit.add_done_callback(self._commits.discard)
        return await asyncio.shield(commit)

    async def _admitted(self, question: _Question, pool: PoolStatus, params: TurnParams, plan: Plan) -> _Question:
        """Count the prompt and ask the gateway; the question comes back with its own count."""
        tokenizer = self._ports.gateway.tokenizer(pool.name)
        if len(question.text) + len(question.shown) > _SHORT_TEXT or any(message.content_tokens is None for message in question.earlier):
            prompt_tokens, text_tokens = await asyncio.to_thread(_count, tokenizer, question, pool.context_tokens)
        else:
            prompt_tokens, text_tokens = _count(tokenizer, question, pool.context_tokens)
        asked = self._ports.answer_tokens(pool.name, plan) if params.max_tokens is None else params.max_tokens
        expected = output_tokens(asked, context_tokens=pool.context_tokens, prompt_tokens=prompt_tokens)
        decision = self._ports.gateway.decide(pool.name, prompt_tokens=prompt_tokens, output_tokens=expected, band=plan.band)
        if isinstance(decision, Shed):
            refusal = HighDemand if decision.code == "high_demand" else NoCapacity
            raise refusal(retry_after_ms=decision.retry_after_ms)
        if isinstance(question.what, NewUserMessage):
            return replace(question, what=replace(question.what, content_tokens=text_tokens))
        return question

    async def _commit(self, turn: TurnToAccept, continues: GenerationId | None) -> Accepted:
        accepted = await self._ports.generations.accept(turn)
        if not accepted.replayed:
            self._ports.telemetry.count(TURNS, 1, turn.pool, _KINDS[type(turn.what)])
        self._runner.wake(accepted.generation_id, continues=continues)
        return accepted


def _check_content(request: SendMessage) -> None:
    content = request.content
    if content is None:
        return
    if len(content.encode()) > MESSAGE_BYTES:
        raise MessageTooLarge
    if not content.strip():
        raise InvalidRequest([FieldFault("content", "A message needs some text.")])


def _check_params(params: TurnParams, plan: Plan) -> None:
    cap = plan.max_output_tokens
    if params.max_tokens is not None and not 1 <= params.max_tokens <= cap:
        raise InvalidRequest([FieldFault("params.max_tokens", f"This plan allows 1 to {cap} tokens.")])


def _count(tokenizer: Tokenizer, question: _Question, context_tokens: int) -> tuple[int, int]:
    """Tokens of the whole prompt and of the question's text. A pool without a context yet is not asked to fit."""
    shown_tokens = len(tokenizer.encode(question.shown)) if question.shown else 0
    text_tokens = len(tokenizer.encode(question.text))
    if context_tokens <= 0:
        return shown_tokens + text_tokens, text_tokens
    plan = plan_prompt(tokenizer, question.earlier, question.text, context_tokens=context_tokens, already_tokens=shown_tokens)
    return plan.tokens + shown_tokens, text_tokens
