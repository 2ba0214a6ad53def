"""What the orchestrator acts through, handed to it once by the wiring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from antiphon.core.clock import Clock
from antiphon.core.errors import Forbidden
from antiphon.core.ids import IdSource
from antiphon.core.plans import Plan
from antiphon.core.telemetry import Telemetry
from antiphon.engines.base import Embedder
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.allowances import Allowances
from antiphon.orchestrator.books import Books
from antiphon.orchestrator.response_cache import ResponseCache
from antiphon.orchestrator.settings import Timing
from antiphon.stores.conversations.base import Conversations
from antiphon.stores.generations.base import Generations
from antiphon.stores.log.base import GenerationLog
from antiphon.stores.personal.base import PersonalTexts
from antiphon.stores.prompts.base import Prompts


@dataclass(frozen=True, slots=True)
class Ports:
    """``default_output_tokens`` maps a pool's name to the answer length used when the caller names none; where it is
    absent the plan's cap applies."""

    conversations: Conversations
    generations: Generations
    log: GenerationLog
    gateway: Gateway
    allowances: Allowances
    plans: Mapping[str, Plan]
    clock: Clock
    ids: IdSource
    timing: Timing
    telemetry: Telemetry
    prompts: Prompts
    personal: PersonalTexts
    response_cache: ResponseCache = field(default_factory=ResponseCache)
    embedder: Embedder | None = None
    """``None``: earlier turns are searched by their words alone."""
    default_output_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    books: Books = field(init=False)
    """What is open of generations that ``generations`` does not keep."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "books", Books(self.generations, self.allowances, self.clock, self.timing))

    def plan(self, name: str) -> Plan:
        """The plan of that name; raises ``Forbidden`` when the configuration has none."""
        plan = self.plans.get(name)
        if plan is None:
            raise Forbidden("The plan of this account is not configured on this server.")
        return plan

    def answer_tokens(self, pool: str, plan: Plan) -> int:
        """How long an answer of ``pool`` may get when the caller names no ``max_tokens``."""
        return min(plan.max_output_tokens, self.default_output_tokens.get(pool, plan.max_output_tokens))
