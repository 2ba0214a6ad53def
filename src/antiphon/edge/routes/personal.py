"""What a user wants in every conversation: instructions, and things to remember. All of it can be read, changed and removed."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from antiphon.core.ids import IdKind, MemoryId
from antiphon.core.prompts import Memory
from antiphon.edge.access import CHAT, GuardedRoute, OwnerOf, Services, guarded
from antiphon.edge.answers import InstructionsAnswer, MemoriesAnswer, MemoryAnswer, memory_answer
from antiphon.edge.api_document import refuses
from antiphon.edge.paths import MemoryPath
from antiphon.edge.schemas import MOST_MEMORIES, InstructionsChange, MemoryText

router = APIRouter(prefix="/v1/me", tags=["personal"], route_class=GuardedRoute)


@router.get("/instructions")
@guarded(CHAT)
async def get_instructions(owner: OwnerOf, services: Services) -> InstructionsAnswer:
    """What the user tells every model before a conversation; temporary conversations are without it."""
    return InstructionsAnswer((await services.personal.get(owner)).instructions)


@router.put("/instructions")
@guarded(CHAT)
async def put_instructions(body: InstructionsChange, owner: OwnerOf, services: Services) -> InstructionsAnswer:
    """Replace the instructions; the empty text removes them. They hold from the next message on."""
    text = body.text.strip()
    await services.personal.put_instructions(owner, text)
    return InstructionsAnswer(text)


@router.get("/memory")
@guarded(CHAT)
async def get_memory(owner: OwnerOf, services: Services) -> MemoriesAnswer:
    """Everything that is remembered in all conversations but temporary ones, oldest first."""
    return MemoriesAnswer([memory_answer(memory) for memory in (await services.personal.get(owner)).memories])


@router.post("/memory", status_code=201, responses=refuses(409))
@guarded(CHAT)
async def add_memory(body: MemoryText, owner: OwnerOf, services: Services) -> MemoryAnswer:
    """Remember one thing more."""
    memory = Memory(MemoryId(services.ids.new(IdKind.MEMORY)), " ".join(body.text.split()), services.clock.now())
    await services.personal.add_memory(owner, memory, at_most=MOST_MEMORIES)
    return memory_answer(memory)


@router.patch("/memory/{memory_id}")
@guarded(CHAT)
async def change_memory(memory_id: MemoryPath, body: MemoryText, owner: OwnerOf, services: Services) -> MemoryAnswer:
    """Put it another way."""
    return memory_answer(await services.personal.change_memory(owner, memory_id, " ".join(body.text.split())))


@router.delete("/memory/{memory_id}", status_code=204)
@guarded(CHAT)
async def forget_memory(memory_id: MemoryPath, owner: OwnerOf, services: Services) -> Response:
    """Forget one thing."""
    await services.personal.forget_memory(owner, memory_id)
    return Response(status_code=204)
