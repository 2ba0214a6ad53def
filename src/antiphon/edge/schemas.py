"""What callers send. Strict: no unknown fields, no conversions, no NaN; text rules are the parser's (``body.py``)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from antiphon.core.tenancy import Scope
from antiphon.edge.passwords import MAX_PASSWORD, MIN_PASSWORD

MAX_MESSAGE_BYTES = 256_000
MAX_TITLE = 200
MAX_INSTRUCTIONS = 1500
MAX_MEMORY = 200
MOST_MEMORIES = 30

_INT64 = 2**63

Title = Annotated[str, Field(max_length=MAX_TITLE, pattern=r"^$|\S")]
"""Empty where there is none yet; never white space alone, which would be a line in the sidebar that nobody sees."""
Name = Annotated[str, Field(min_length=1, max_length=MAX_TITLE)]
IdText = Annotated[str, Field(max_length=64)]
StopText = Annotated[str, Field(min_length=1, max_length=64)]
Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(gt=0, le=1)]
Seed = Annotated[int, Field(ge=-_INT64, lt=_INT64)]
MaxTokens = Annotated[int, Field(ge=1, lt=_INT64)]
IdempotencyKeyText = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[ -~]+$")]
Rating = Annotated[int, Field(ge=-1, le=1)]
One = Annotated[int, Field(ge=1, le=1)]
NoneOf = Annotated[int, Field(ge=0, le=0)]
Zero = Annotated[float, Field(ge=0, le=0)]
Nothing = Annotated[list[str], Field(max_length=0)]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class SignIn(Strict):
    """Either the token of a sign-in link, or a name with its password."""

    token: Annotated[str, Field(max_length=256)] | None = None
    name: Annotated[str, Field(max_length=MAX_TITLE)] | None = None
    password: Annotated[str, Field(max_length=1024)] | None = None
    tenant: Annotated[str, Field(max_length=MAX_TITLE)] | None = None


class NewPassword(Strict):
    """``current_password`` is needed where there is one."""

    password: Annotated[str, Field(min_length=MIN_PASSWORD, max_length=MAX_PASSWORD)]
    current_password: Annotated[str, Field(max_length=MAX_PASSWORD)] | None = None


class Invitation(Strict):
    name: Annotated[str, Field(min_length=1, max_length=MAX_TITLE, pattern=r"^\S(.*\S)?$")]
    role: Literal["owner", "admin", "member"] = "member"
    plan: Name | None = None


class UserPatch(Strict):
    role: Literal["owner", "admin", "member"] | None = None
    plan: Name | None = None
    disabled: bool | None = None


class NewKey(Strict):
    name: Name
    scopes: Annotated[list[Literal["chat", "usage", "admin", "metrics"]], Field(max_length=len(Scope))] | None = None
    priority: Literal["batch", "low", "standard", "high"] | None = None


class NewConversation(Strict):
    title: Title | None = None
    model: Name | None = None
    temporary: bool = False


class ConversationChange(Strict):
    title: Annotated[str, Field(max_length=MAX_TITLE, pattern=r"\S")] | None = None
    model: Name | None = None
    pinned: bool | None = None
    archived: bool | None = None
    current_leaf_id: IdText | None = None
    folder: Annotated[str, Field(max_length=MAX_TITLE)] | None = None


class InstructionsChange(Strict):
    text: Annotated[str, Field(max_length=MAX_INSTRUCTIONS)]


class MemoryText(Strict):
    text: Annotated[str, Field(min_length=1, max_length=MAX_MEMORY, pattern=r"\S")]


Url = Annotated[str, Field(min_length=1, max_length=2000)]
ServerKey = Annotated[str, Field(max_length=4096)]


class OutsideServer(Strict):
    """An OpenAI-compatible server: its address up to ``/v1``, and its key where it has one."""

    url: Url
    key: ServerKey = ""


class NewPool(OutsideServer):
    """``name`` is what people choose it by; without one it is made from the model's."""

    model: Name
    name: Annotated[str, Field(max_length=64)] = ""


class RetentionChange(Strict):
    """``days`` null keeps for ever."""

    days: Annotated[int, Field(ge=1, le=36_500)] | None


class Params(Strict):
    """How the answer is sampled; what is absent is the plan's and the model's default."""

    max_tokens: MaxTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: Annotated[list[StopText], Field(max_length=4)] | None = None


class NewMessage(Strict):
    """``content`` null with a user message as parent regenerates its answer; an absent parent is the current leaf."""

    content: str | None
    parent_message_id: IdText | None = None
    model: Name | None = None
    params: Params | None = None
    file_ids: Nothing | None = None
    idempotency_key: IdempotencyKeyText | None = None


class ContinueMessage(Strict):
    params: Params | None = None
    idempotency_key: IdempotencyKeyText | None = None


class Cancel(Strict):
    """``seen_id`` is the last event id the stopper has shown; the kept text reaches at least that far."""

    seen_id: IdText | None = None


class CaseReview(Strict):
    """``trusted_days``: for how long nothing is held against who is cleared."""

    state: Literal["clear", "throttled"]
    trusted_days: Annotated[int, Field(ge=1, le=365)] = 7


class NewFeedback(Strict):
    rating: Rating
    reasons: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=16)] | None = None
    comment: Annotated[str, Field(max_length=4000)] | None = None


# --- OpenAI's shapes: what we do is taken, what would change the answer and is not done is refused -----------------


class TextPart(Strict):
    type: Literal["text"]
    text: str


class ChatMessage(Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1, max_length=256)]
    name: Annotated[str, Field(max_length=64)] | None = None
    refusal: None = None
    tool_calls: Nothing | None = None

    @property
    def text(self) -> str:
        """The content as one string."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class TextFormat(Strict):
    type: Literal["text"]


class StreamOptions(Strict):
    include_usage: bool = False
    include_obfuscation: bool = False


class ChatCompletion(Strict):
    """``POST /v1/chat/completions``. Fields below ``stream_options`` are accepted only where they ask for nothing."""

    model: Name | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=4096)]
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=4)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    n: One | None = None
    frequency_penalty: Zero | None = None
    presence_penalty: Zero | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    logprobs: Literal[False] | None = None
    top_logprobs: NoneOf | None = None
    response_format: TextFormat | None = None
    tools: Nothing | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = None
    store: Literal[False] | None = None
    metadata: Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)] | None = None
    service_tier: Literal["auto", "default"] | None = None
    user: Annotated[str, Field(max_length=512)] | None = None
    safety_identifier: Annotated[str, Field(max_length=512)] | None = None
    prompt_cache_key: Annotated[str, Field(max_length=512)] | None = None
