"""Accept a turn: check everything, write once, wake the runner.

The order is the design's: a replayed idempotency key answers first and spends nothing; then the parent, the count of the
prompt, the gateway's word, the allowances, and at last one transaction. A turn that was accepted is never shed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from antiphon.core.allowance import Customer, Serving
from antiphon.core.errors import (
    AntiphonError,
    Draining,
    FieldFault,
    InvalidRequest,
    ParentStreaming,
    PromptTooLong,
    Refused,
)
from antiphon.core.generation import TurnParams
from antiphon.core.ids import ConversationId, GenerationId, IdKind, MessageId
from antiphon.core.messages import Conversation, Message, MessageStatus, PromptRecord, Role
from antiphon.core.plans import Plan
from antiphon.core.telemetry import TURNS
from antiphon.core.tenancy import Principal
from antiphon.inference.fleet import ServedPool
from antiphon.orchestrator.asking import Route, Size, ask_for, check_content, check_params, route_of
from antiphon.orchestrator.keyed_lock import KeyedLock
from antiphon.orchestrator.parts import Question
from antiphon.orchestrator.planner import Place, PlannedPrompt
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.prompt import MINIMUM_OUTPUT_TOKENS, output_tokens
from antiphon.orchestrator.response_cache import Starter, StarterKey
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

log = structlog.get_logger(__name__)

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
class _Asked:
    """What is to be answered: ``question`` at ``place``, of which ``shown`` is written already.

    ``prompt`` is what that was written from; ``planned`` is there once the turn is admitted, where a model's context is known.
    """

    what: NewUserMessage | RegenerateUnder | ContinueMessage
    place: Place
    question: Question
    shown: str = ""
    continues: GenerationId | None = None
    prompt: PromptRecord | None = None
    planned: PlannedPrompt | None = None
    prompt_tokens: int = 0
    most_output_tokens: int = 0
    starter: Starter | None = None


class TurnDesk:
    """Where turns come in."""

    def __init__(self, ports: Ports, runner: Runner) -> None:
        self._ports = ports
        self._runner = runner
        self._commits: set[asyncio.Task[Accepted]] = set()
        self._keys = KeyedLock[tuple[str, str]]()

    async def send(self, principal: Principal, request: SendMessage) -> Accepted:
        """Accept a message. When it returns, the turn is durable and will be answered.

        Raises ``MessageTooLarge``, ``InvalidRequest``, ``NotFound``, ``ParentStreaming``, ``IdempotencyMismatch``,
        ``ModelGone``, ``Forbidden``, ``PromptTooLong``, ``HighDemand``, ``RateLimited``, ``QuotaExhausted``, ``ConcurrencyLimited``,
        ``NoCapacity``, ``Draining``, ``StoreUnavailable``, ``DiskFull``; then nothing was written, and nothing is held.
        """
        plan = self._ports.plan(principal.plan).within(principal.band)
        check_content(request.content)
        check_params(request.params, plan)
        key = self._key(principal, f"POST /v1/conversations/{request.conversation_id}/messages", request)
        return await self._once(key, lambda: self._send(principal, request, plan, key))

    async def _send(self, principal: Principal, request: SendMessage, plan: Plan, key: IdempotencyKey | None) -> Accepted:
        owner = Owner(principal.tenant_id, principal.user_id)
        conversation = await self._ports.conversations.get(owner, request.conversation_id)
        pool = self._ports.gateway.resolve(request.model or conversation.model, plan.models)
        asked = await self._asked(owner, conversation, request)
        return await self._accept(principal, asked, pool, request.params, key)

    async def continue_message(self, principal: Principal, request: ContinueRequest) -> Accepted:
        """Accept a *Continue*. Raises what ``send`` raises."""
        plan = self._ports.plan(principal.plan).within(principal.band)
        check_params(request.params, plan)
        key = self._key(principal, f"POST /v1/messages/{request.message_id}/continue", request)
        return await self._once(key, lambda: self._continue(principal, request, plan, key))

    async def _continue(self, principal: Principal, request: ContinueRequest, plan: Plan, key: IdempotencyKey | None) -> Accepted:
        owner = Owner(principal.tenant_id, principal.user_id)
        message = await self._settled(owner, await self._ports.conversations.message(owner, request.message_id))
        pool = self._ports.gateway.resolve(await self._pool_of(owner, message), plan.models)
        conversation = await self._ports.conversations.get(owner, message.conversation_id)
        self._runner.planner.forget(message.id)
        parent = None if message.parent_id is None else await self._ports.conversations.message(owner, message.parent_id)
        leaf, question = (None, Question(message.id, "")) if parent is None else (parent.parent_id, Question(parent.id, parent.content))
        asked = _Asked(
            what=ContinueMessage(message.id),
            place=Place(owner, conversation.id, leaf, conversation.temporary),
            question=question,
            shown=message.content,
            continues=message.generation_id,
            prompt=message.prompt,
        )
        return await self._accept(principal, asked, pool, request.params, key)

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

        Equal requests come one after the other, so that of many at once one spends and the others are its replays; one that came to
        another process may still come first while this one is checked, and be the very reason for its refusal.
        """
        if key is None:
            return await self._first(None, accept)
        async with self._keys.holding((key.scope, key.key)):
            return await self._first(key, accept)

    async def _first(self, key: IdempotencyKey | None, accept: Callable[[], Awaitable[Accepted]]) -> Accepted:
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

    async def _asked(self, owner: Owner, conversation: Conversation, request: SendMessage) -> _Asked:
        parent = conversation.current_leaf_id if isinstance(request.parent, CurrentLeaf) else request.parent
        above: Message | None = None
        if parent is not None:
            (above,) = await self._ports.conversations.branch(owner, conversation.id, parent, last=1)
            above = await self._settled(owner, above)
        if request.content is None:
            if above is None or above.role is not Role.USER:
                raise InvalidRequest([FieldFault("content", "Content may be null only under a user message.")])
            place = Place(owner, conversation.id, above.parent_id, conversation.temporary)
            return _Asked(RegenerateUnder(above.id), place, Question(above.id, above.content))
        message_id = MessageId(self._ports.ids.new(IdKind.MESSAGE))
        what = NewUserMessage(message_id, request.parent, request.content, None)
        return _Asked(what, Place(owner, conversation.id, parent, conversation.temporary), Question(message_id, request.content))

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
        asked: _Asked,
        pool: ServedPool,
        params: TurnParams,
        key: IdempotencyKey | None,
    ) -> Accepted:
        plan = self._ports.plan(principal.plan).within(principal.band)
        generation_id = GenerationId(self._ports.ids.new(IdKind.GENERATION))
        try:
            asked, route = await self._admitted(principal, asked, pool, params, generation_id)
        except BaseException:
            self._ports.gateway.withdraw(generation_id)
            raise
        if route.output_tokens is not None:
            params = replace(params, max_tokens=route.output_tokens)
        planned = asked.planned
        turn = TurnToAccept(
            owner=Owner(principal.tenant_id, principal.user_id),
            conversation_id=asked.place.conversation_id,
            what=asked.what,
            message_id=MessageId(self._ports.ids.new(IdKind.MESSAGE)),
            generation_id=generation_id,
            model=route.model,
            requested_model=route.requested,
            params=params,
            plan=plan.name,
            key_id=principal.key_id,
            band=principal.band,
            idempotency=key,
            now=self._ports.clock.now(),
            pool=route.pool,
            route_rule=route.rule,
            route_reason=route.reason,
            prompt=None if planned is None else planned.record,
            preamble=None if planned is None else planned.preamble,
            summary=None if planned is None else planned.summary,
        )
        commit = asyncio.create_task(self._commit(Customer.of(principal, plan), turn, asked))
        self._commits.add(commit)
        commit.add_done_callback(self._commits.discard)
        return await asyncio.shield(commit)

    async def _admitted(
        self, principal: Principal, asked: _Asked, pool: ServedPool, params: TurnParams, generation_id: GenerationId
    ) -> tuple[_Asked, Route]:
        """Count the prompt and ask the gateway, which keeps a place; what was asked comes back with its count, and with what
        will be read for it, and who answers.
        """
        plan, gateway = self._ports.plan(principal.plan).within(principal.band), self._ports.gateway
        asked, prompt_tokens = await self._counted(asked, pool)
        wanted = self._ports.answer_tokens(pool.name, plan) if params.max_tokens is None else params.max_tokens
        expected = output_tokens(wanted, context_tokens=pool.context_tokens, prompt_tokens=prompt_tokens)
        ask = ask_for(
            Owner(principal.tenant_id, principal.user_id),
            plan,
            Size(prompt_tokens, expected, free_length=params.max_tokens is None),
            kind=_KINDS[type(asked.what)],
            conversation=asked.place.conversation_id,
            smaller=gateway.smaller(pool.name),
        )
        starter = self._starter(asked, pool, params, wanted)
        as_asked = Route(pool.name, pool.model, pool.model)
        if starter is not None and starter.answer is not None:  # nobody waits for what is there
            return replace(asked, prompt_tokens=prompt_tokens, most_output_tokens=expected, starter=starter), as_asked
        route = route_of(gateway.accept(generation_id, pool.name, ask), pool)
        asked = replace(asked, starter=starter if route == as_asked else None)
        if route.pool != pool.name:
            smaller = gateway.resolve(route.pool, ())
            try:
                asked, prompt_tokens = await self._counted(asked, smaller)
                expected = output_tokens(wanted, context_tokens=smaller.context_tokens, prompt_tokens=prompt_tokens)
            except PromptTooLong:  # for the smaller model alone: whoever was asked for answers, or says when
                gateway.withdraw(generation_id)
                route = route_of(gateway.accept(generation_id, pool.name, replace(ask, downgrade=False)), pool)
        most = expected if route.output_tokens is None else min(expected, route.output_tokens)
        return replace(asked, prompt_tokens=prompt_tokens, most_output_tokens=most), route

    def _starter(self, asked: _Asked, pool: ServedPool, params: TurnParams, output_tokens: int) -> Starter | None:
        """What the response cache has to do with this turn: nothing, but for a starter prompt that begins a conversation."""
        if asked.planned is None or asked.place.leaf is not None or not isinstance(asked.what, NewUserMessage):
            return None
        key = StarterKey(pool.name, pool.release, asked.question.text, output_tokens)
        return self._ports.response_cache.starter(key, params, asked.planned.preamble)

    async def _counted(self, asked: _Asked, pool: ServedPool) -> tuple[_Asked, int]:
        """The prompt, and its length in tokens. A pool without a context yet is not asked to fit: its prompt is planned later."""
        planner = self._runner.planner
        if pool.context_tokens <= 0:
            texts = await planner.texts(pool)
            question_tokens, shown_tokens = await asyncio.to_thread(lambda: (texts.count(asked.question.text), texts.count(asked.shown)))
            return _with_count(asked, question_tokens), question_tokens + shown_tokens
        if asked.prompt is not None and asked.prompt.model == pool.model:
            texts = await planner.texts(pool)
            tokens = asked.prompt.tokens + await asyncio.to_thread(texts.count, asked.shown)
            if tokens <= pool.context_tokens - MINIMUM_OUTPUT_TOKENS:
                return asked, tokens
        planned = await planner.plan(asked.place, asked.question, pool, already=asked.shown)
        return replace(_with_count(asked, planned.question_tokens), planned=planned), planned.tokens

    async def _commit(self, customer: Customer, turn: TurnToAccept, asked: _Asked) -> Accepted:
        """Hold, write, wake; a task of its own, so that a caller who goes leaves nothing held for a turn that is not there."""
        allowances, gateway = self._ports.allowances, self._ports.gateway
        try:
            standings = await allowances.reserve(
                customer,
                Serving(turn.pool, turn.model),
                turn.generation_id,
                prompt_tokens=asked.prompt_tokens,
                most_output_tokens=asked.most_output_tokens,
            )
            try:
                accepted = await self._ports.generations.accept(turn)
            except BaseException:
                await allowances.release(customer, turn.generation_id)
                raise
        except BaseException:
            gateway.withdraw(turn.generation_id)
            raise
        if accepted.replayed:
            gateway.withdraw(turn.generation_id)
            await allowances.release(customer, turn.generation_id)
        else:
            accepted = replace(accepted, standings=standings)
            self._ports.telemetry.count(TURNS, 1, turn.pool, _KINDS[type(turn.what)])
            allowances.watch.began(customer, turn.generation_id, turn.conversation_id, asked.question.text)
        self._runner.wake(accepted.generation_id, continues=asked.continues, starter=asked.starter)
        if asked.planned is not None and asked.planned.fresh_counts:
            await self._keep_counts(turn, asked.planned.fresh_counts)
        return accepted

    async def _keep_counts(self, turn: TurnToAccept, counts: Mapping[MessageId, int]) -> None:
        """An economy: what cannot be stored now is counted again."""
        try:
            await self._ports.prompts.add_counts(turn.owner, turn.conversation_id, turn.model, counts)
        except AntiphonError as error:
            log.warning("counts_not_kept", conversation_id=turn.conversation_id, error=error.code)


def _with_count(asked: _Asked, question_tokens: int) -> _Asked:
    if isinstance(asked.what, NewUserMessage):
        return replace(asked, what=replace(asked.what, content_tokens=question_tokens))
    return asked
