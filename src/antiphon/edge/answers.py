"""What callers get, as in the contract, and how it is made from the core's words."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.clock import rfc3339
from antiphon.core.generation import Generation
from antiphon.core.messages import Conversation, Message, MessageError, TreeNode
from antiphon.core.prompts import Memory
from antiphon.core.tenancy import Principal
from antiphon.orchestrator.parts import read_context
from antiphon.orchestrator.shown_prompt import ShownPrompt
from antiphon.orchestrator.transfer.importing import Report
from antiphon.stores.conversations.base import PathPage
from antiphon.stores.generations.base import Accepted


@dataclass(frozen=True, slots=True)
class MeAnswer:
    user_id: str
    tenant_id: str
    name: str
    role: str
    plan: str
    scopes: list[str]


@dataclass(frozen=True, slots=True)
class InstructionsAnswer:
    text: str


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    id: str
    text: str
    created_at: str


@dataclass(frozen=True, slots=True)
class MemoriesAnswer:
    data: list[MemoryAnswer]


@dataclass(frozen=True, slots=True)
class ConversationAnswer:
    id: str
    title: str
    model: str | None
    current_leaf_id: str | None
    version: int
    pinned: bool
    archived: bool
    temporary: bool
    created_at: str
    updated_at: str
    title_source: str
    folder: str | None


@dataclass(frozen=True, slots=True)
class ConversationsAnswer:
    data: list[ConversationAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """What the model was not given whole: earlier messages left out, whether a summary stands for them, snippets brought back."""

    omitted: int
    summarised: bool
    snippets: int


@dataclass(frozen=True, slots=True)
class MessageAnswer:
    id: str
    conversation_id: str
    parent_id: str | None
    role: str
    content: str
    status: str
    model: str | None
    requested_model: str | None
    finish_reason: str | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    cost: str | None
    generation_id: str | None
    created_at: str
    error: ErrorAnswer | None
    reasoning: str | None
    context: ContextAnswer | None
    rating: int | None


@dataclass(frozen=True, slots=True)
class PathAnswer:
    """The path root → leaf; ``next`` is the ``before`` of the messages above."""

    data: list[MessageAnswer]
    siblings: dict[str, list[str]]
    next: str | None


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    id: str
    parent_id: str | None
    role: str
    status: str
    created_at: str


@dataclass(frozen=True, slots=True)
class TreeAnswer:
    data: list[NodeAnswer]


@dataclass(frozen=True, slots=True)
class AcceptedAnswer:
    conversation_id: str
    user_message_id: str | None
    message_id: str
    generation_id: str
    stream_url: str


@dataclass(frozen=True, slots=True)
class RouteAnswer:
    requested: str
    served: str
    rule: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class UsageAnswer:
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queued_ms: int
    prefill_ms: int
    decode_ms: int
    accelerator_ms: int
    cost: str | None


@dataclass(frozen=True, slots=True)
class GenerationAnswer:
    id: str
    message_id: str
    status: str
    epoch: int
    seq: int
    last_event_id: str | None
    position: int | None
    eta_ms: int | None
    text: str
    route: RouteAnswer
    usage: UsageAnswer
    error: ErrorAnswer | None


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """``cached`` of its ``tokens`` were found in the prefix cache; a turn, summary or snippet names its message."""

    kind: str
    message_id: str | None
    text: str
    tokens: int
    cached: int


@dataclass(frozen=True, slots=True)
class PromptAnswer:
    """What the model was given to read, in order. ``omitted`` are the earlier messages that were not, oldest first."""

    parts: list[PartAnswer]
    prompt_tokens: int
    omitted: list[str]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a generation is beyond what its row says: the log's place and text, the queue's position."""

    seq: int
    last_event_id: str | None
    text: str
    position: int | None = None
    eta_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ImportLineAnswer:
    """What became of one conversation: ``imported``, ``skipped`` or ``failed``."""

    source_id: str
    status: str
    id: str | None
    messages: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class ImportAnswer:
    conversations: list[ImportLineAnswer]
    imported: int
    skipped: int
    failed: int


def import_answer(report: Report) -> ImportAnswer:
    lines = [ImportLineAnswer(line.source_id, line.status, line.conversation_id, line.messages, line.reason) for line in report.lines]
    return ImportAnswer(lines, report.count("imported"), report.count("skipped"), report.count("failed"))


def me_answer(principal: Principal) -> MeAnswer:
    return MeAnswer(
        user_id=principal.user_id,
        tenant_id=principal.tenant_id,
        name=principal.name,
        role=principal.role.value,
        plan=principal.plan,
        scopes=sorted(scope.value for scope in principal.scopes),
    )


def memory_answer(memory: Memory) -> MemoryAnswer:
    return MemoryAnswer(memory.id, memory.text, rfc3339(memory.created_at))


def conversation_answer(conversation: Conversation) -> ConversationAnswer:
    return ConversationAnswer(
        id=conversation.id,
        title=conversation.title,
        model=conversation.model,
        current_leaf_id=conversation.current_leaf_id,
        version=conversation.version,
        pinned=conversation.pinned,
        archived=conversation.archived,
        temporary=conversation.temporary,
        created_at=rfc3339(conversation.created_at),
        updated_at=rfc3339(conversation.updated_at),
        title_source=conversation.title_source.value,
        folder=conversation.folder,
    )


def message_answer(message: Message, rating: int | None) -> MessageAnswer:
    """``rating``: the caller's own."""
    return MessageAnswer(
        id=message.id,
        conversation_id=message.conversation_id,
        parent_id=message.parent_id,
        role=message.role.value,
        content=message.content,
        status=message.status.value,
        model=message.model,
        requested_model=message.requested_model,
        finish_reason=message.finish_reason,
        prompt_tokens=message.prompt_tokens,
        cached_tokens=message.cached_tokens,
        output_tokens=message.output_tokens,
        cost=None if message.cost is None else str(message.cost),
        generation_id=message.generation_id,
        created_at=rfc3339(message.created_at),
        error=error_answer(message.error),
        reasoning=message.reasoning or None,
        context=_context_answer(message),
        rating=rating,
    )


def _context_answer(message: Message) -> ContextAnswer | None:
    read = read_context(message.prompt)
    return None if read is None else ContextAnswer(read.omitted, read.summarised, read.snippets)


def path_answer(page: PathPage) -> PathAnswer:
    return PathAnswer(
        data=[message_answer(message, page.ratings.get(message.id)) for message in page.messages],
        siblings={str(message_id): [str(sibling) for sibling in siblings] for message_id, siblings in page.siblings.items()},
        next=page.next_cursor,
    )


def node_answer(node: TreeNode) -> NodeAnswer:
    return NodeAnswer(node.id, node.parent_id, node.role.value, node.status.value, rfc3339(node.created_at))


def accepted_answer(accepted: Accepted) -> AcceptedAnswer:
    return AcceptedAnswer(
        conversation_id=accepted.conversation_id,
        user_message_id=accepted.user_message_id,
        message_id=accepted.message_id,
        generation_id=accepted.generation_id,
        stream_url=f"/v1/generations/{accepted.generation_id}/stream",
    )


def generation_answer(generation: Generation, progress: Progress) -> GenerationAnswer:
    usage = generation.usage
    return GenerationAnswer(
        id=generation.id,
        message_id=generation.message_id,
        status=generation.status.value,
        epoch=generation.epoch,
        seq=progress.seq,
        last_event_id=progress.last_event_id,
        position=progress.position,
        eta_ms=progress.eta_ms,
        text=progress.text,
        route=RouteAnswer(
            requested=generation.requested_model,
            served=generation.model,
            rule=generation.route_rule or None,
            reason=generation.route_reason or None,
        ),
        usage=UsageAnswer(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
            queued_ms=usage.queued_ms,
            prefill_ms=usage.prefill_ms,
            decode_ms=usage.decode_ms,
            accelerator_ms=usage.accelerator_ms,
            cost=None if usage.cost is None else str(usage.cost),
        ),
        error=error_answer(generation.error),
    )


def prompt_answer(shown: ShownPrompt) -> PromptAnswer:
    parts = [
        PartAnswer(one.part.kind.value, one.part.message_id, one.part.text, one.tokens, cached)
        for one, cached in zip(shown.parts, shown.cached, strict=True)
    ]
    return PromptAnswer(parts, shown.prompt_tokens, list(shown.omitted))


def error_answer(error: MessageError | None) -> ErrorAnswer | None:
    return None if error is None else ErrorAnswer(error.code, error.message, error.retryable)
