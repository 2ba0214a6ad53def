"""Generations on SQL. A turn is accepted, and ended, in one transaction with its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from antiphon.core.clock import from_ms, to_ms
from antiphon.core.errors import Conflict, IdempotencyMismatch, NotFound, StaleEpoch
from antiphon.core.generation import Generation, GenerationStatus, Usage
from antiphon.core.ids import ConversationId, GenerationId, MessageId, TenantId
from antiphon.core.usage import UsageRecord
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.head import after_accept
from antiphon.stores.generations import turn_rules
from antiphon.stores.generations.base import (
    Accepted,
    ContinueMessage,
    CurrentLeaf,
    FinishedGeneration,
    IdempotencyKey,
    NewUserMessage,
    RegenerateUnder,
    TurnToAccept,
)
from antiphon.stores.prompts.sql import put_preamble, put_summary
from antiphon.stores.sql import rows, search
from antiphon.stores.sql.base import Database, Value, across_tenants, changed_values
from antiphon.stores.sql.open_usage import drop_open, put_open, select_left
from antiphon.stores.sql.prepared import Prepared, PreparedUpdate, matching
from antiphon.stores.sql.store_clock import StoreClock
from antiphon.stores.sql.tables import conversations, generations, idempotency, outbox
from antiphon.stores.sql.trees import (
    insert_messages,
    select_head,
    select_message,
    select_newest_leaf,
    update_columns,
    update_message,
)

_QUEUED, _RUNNING = GenerationStatus.QUEUED.value, GenerationStatus.RUNNING.value
# Written out, as in the partial index that it chooses.
_IS_OPEN = generations.c.status.in_([sa.literal_column(f"'{status}'") for status in (_QUEUED, _RUNNING)])
_OUTBOX_COLUMNS = ("tenant_id", "kind", "dedup_key", "payload", "created_at", "attempts")

_insert = Prepared(generations.insert(), columns=tuple(column.name for column in generations.c if column.name != "cancel_requested_at"))
_select_named = Prepared(
    sa.select(generations).where(generations.c.tenant_id == sa.bindparam("tenant_id"), generations.c.id == sa.bindparam("id"))
)
_select_tenant = Prepared(sa.select(generations.c.tenant_id).where(generations.c.id == sa.bindparam("id")), across="tenant_of_generation")


def _due(now_ms: Value | sa.BindParameter[int]) -> sa.ColumnElement[bool]:
    ended = sa.or_(generations.c.lease_until.is_(None), generations.c.lease_until <= now_ms)
    return sa.or_(generations.c.status == _QUEUED, sa.and_(generations.c.status == _RUNNING, ended))


_take = Prepared(
    generations.update()
    .where(
        generations.c.tenant_id == sa.bindparam("key_tenant_id"), generations.c.id == sa.bindparam("key_id"), _due(sa.bindparam("now_ms"))
    )
    .values(status=_RUNNING, epoch=generations.c.epoch + 1, lease_until=sa.bindparam("until_ms"))
)
_held = (generations.c.epoch == sa.bindparam("key_epoch"), generations.c.status == sa.literal_column(f"'{_RUNNING}'"))
_select_wish = Prepared(
    sa.select(generations.c.cancel_requested_at).where(
        generations.c.tenant_id == sa.bindparam("tenant_id"), generations.c.id == sa.bindparam("id")
    )
)
_update_held_row = PreparedUpdate(generations, "tenant_id", "id", extra=_held)
_end = PreparedUpdate(generations, "tenant_id", "id", extra=(generations.c.epoch == sa.bindparam("key_epoch"), _IS_OPEN))
_select_place = Prepared(
    sa.select(conversations.c.temporary, conversations.c.updated_at).where(
        conversations.c.tenant_id == sa.bindparam("tenant_id"), conversations.c.id == sa.bindparam("id")
    )
)
_move_up = PreparedUpdate(conversations, "tenant_id", "id")
_add_to_outbox = Prepared(outbox.insert(), columns=_OUTBOX_COLUMNS)
_find_usage = Prepared(sa.select(outbox.c.id).where(*matching(outbox, "tenant_id", "dedup_key"), outbox.c.kind == "usage"))
_find_replay = Prepared(
    # The scope names the tenant.
    sa.select(idempotency).where(idempotency.c.scope == sa.bindparam("scope"), idempotency.c.key == sa.bindparam("key")),
    across="find_replay",
)
_drop_expired = Prepared(
    idempotency.delete().where(idempotency.c.tenant_id == sa.bindparam("tenant_id"), idempotency.c.expires_at <= sa.bindparam("now_ms"))
)
_insert_answer = Prepared(idempotency.insert())


_now = Prepared(sa.select(StoreClock()), across="now")


class SqlGenerations:
    """Claims, heartbeats, checkpoints and open usage are not synced one by one: a machine that loses power loses its runners too."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def now(self) -> datetime:
        return await self._db.read(lambda tx: from_ms(_now.run(tx, {}).scalar_one()))

    async def find_replay(self, idempotency: IdempotencyKey, *, now: datetime) -> Accepted | None:
        return await self._db.read(lambda tx: _select_replay(tx, idempotency, now))

    async def accept(self, turn: TurnToAccept) -> Accepted:
        try:
            return await self._db.write(lambda tx: _accept(tx, turn))
        except IntegrityError as error:
            raise Conflict from error

    async def get(self, owner: Owner, generation_id: GenerationId) -> Generation:
        return await self._db.read(lambda tx: _select_owned(tx, owner, generation_id))

    async def claim(self, generation_id: GenerationId, *, now: datetime, lease_until: datetime) -> Generation | None:
        def take(tx: sa.Connection) -> Generation | None:
            tenant_id = _tenant_of(tx, generation_id)
            if tenant_id is None:
                return None
            named = {"key_tenant_id": tenant_id, "key_id": generation_id, "now_ms": to_ms(now), "until_ms": to_ms(lease_until)}
            return _select(tx, tenant_id, generation_id) if _take.run(tx, named).rowcount == 1 else None

        return await self._db.write(take, durable=False)

    async def heartbeat(self, generation_id: GenerationId, epoch: int, *, lease_until: datetime) -> bool:
        def extend(tx: sa.Connection) -> bool:
            tenant_id = _update_held(tx, generation_id, epoch, {"lease_until": to_ms(lease_until)})
            return _select_wish.run(tx, {"tenant_id": tenant_id, "id": generation_id}).scalar_one() is not None

        return await self._db.write(extend, durable=False)

    async def checkpoint(self, generation_id: GenerationId, epoch: int, *, text: str, seq: int, usage: Usage) -> None:
        kept: dict[str, str | int] = {"checkpoint_text": text, "checkpoint_seq": seq, "usage": rows.usage_text(usage)}
        await self._db.write(lambda tx: _update_held(tx, generation_id, epoch, kept), durable=False)

    async def finalise(self, finished: FinishedGeneration) -> None:
        turn_rules.check_finished(finished)
        await self._db.write(lambda tx: _finalise(tx, finished))

    async def add_usage(self, tenant_id: TenantId, generation_id: GenerationId, payload: str, *, now: datetime) -> None:
        def add(tx: sa.Connection) -> None:
            if _find_usage.run(tx, {"tenant_id": tenant_id, "dedup_key": generation_id}).first() is None:
                add_usage(tx, tenant_id, generation_id, payload, to_ms(now))
            drop_open(tx, tenant_id, generation_id)

        await self._db.write(add)

    async def keep_usage(self, records: Sequence[UsageRecord], *, now: datetime) -> None:
        await self._db.write(lambda tx: put_open(tx, records, to_ms(now)), durable=False)

    async def left_usage(self, *, before: datetime, limit: int) -> tuple[UsageRecord, ...]:
        return await self._db.read(lambda tx: select_left(tx, to_ms(before), limit))

    async def request_cancel(self, owner: Owner, generation_id: GenerationId, *, now: datetime) -> Generation:
        def flag(tx: sa.Connection) -> Generation:
            generation = _select_owned(tx, owner, generation_id)
            if generation.status.terminal or generation.cancel_requested:
                return generation
            named = _named(owner.tenant_id, generation_id)
            tx.execute(generations.update().where(*named).values(cancel_requested_at=to_ms(now)))
            return replace(generation, cancel_requested=True)

        return await self._db.write(flag)

    async def due(self, *, now: datetime, limit: int) -> tuple[GenerationId, ...]:
        query = (
            sa.select(generations.c.id).where(_open(), _due(to_ms(now))).order_by(generations.c.created_at, generations.c.id).limit(limit)
        )
        return await self._db.read(lambda tx: tuple(tx.execute(across_tenants(query, "due")).scalars()))

    async def opened(self, *, limit: int) -> tuple[Generation, ...]:
        query = sa.select(generations).where(_open()).order_by(generations.c.created_at, generations.c.id).limit(limit)
        return await self._db.read(lambda tx: tuple(rows.generation_of(row) for row in tx.execute(across_tenants(query, "count_open"))))

    async def count_open(self) -> int:
        query = sa.select(sa.func.count()).select_from(generations).where(_open())
        return await self._db.read(lambda tx: tx.execute(across_tenants(query, "count_open")).scalar_one())


def _accept(tx: sa.Connection, turn: TurnToAccept) -> Accepted:
    if turn.idempotency is not None:
        replay = _select_replay(tx, turn.idempotency, turn.now)
        if replay is not None:
            return replay
    head = select_head(tx, turn.owner, turn.conversation_id, lock=True)
    texts: list[tuple[MessageId | None, str]] = []
    match turn.what:
        case NewUserMessage(parent=asked) as new:
            parent = _parent_of_text(tx, turn.owner, turn.conversation_id, head.current_leaf_id, asked)
            user_message = turn_rules.user_message(turn, new, parent)
            answer = turn_rules.placeholder(turn, user_message.id)
            insert_messages(tx, turn.owner.tenant_id, user_message, answer)
            texts.append((user_message.id, new.content))
        case RegenerateUnder(user_message_id=parent_id):
            turn_rules.check_regenerate_under(select_message(tx, turn.owner, turn.conversation_id, parent_id))
            answer = turn_rules.placeholder(turn, parent_id)
            insert_messages(tx, turn.owner.tenant_id, answer)
        case ContinueMessage(message_id=message_id):
            message = select_message(tx, turn.owner, turn.conversation_id, message_id)
            turn_rules.check_continue(message)
            answer = turn_rules.reopened(message, turn)
            update_message(tx, turn.owner.tenant_id, message, answer)
    generation = turn_rules.queued_generation(turn, answer)
    _insert.run(tx, rows.generation_values(generation))
    after = after_accept(head, answer.id, texts[0][1] if texts else None, now=turn.now)
    update_columns(tx, head, after)
    if after.title != head.title:
        texts.append((None, after.title))
    if not head.temporary:
        search.add(tx, turn.owner, head.id, texts)
    _put_context(tx, turn, head.id)
    accepted = turn_rules.accepted(generation)
    if turn.idempotency is not None:
        _insert_replay(tx, turn.owner.tenant_id, turn.idempotency, accepted, turn.now)
    return accepted


def _put_context(tx: sa.Connection, turn: TurnToAccept, conversation_id: ConversationId) -> None:
    if turn.preamble is not None:
        put_preamble(tx, turn.owner, conversation_id, turn.preamble)
    if turn.summary is not None:
        put_summary(tx, turn.owner, turn.summary)


def _parent_of_text(
    tx: sa.Connection,
    owner: Owner,
    conversation_id: ConversationId,
    current_leaf_id: MessageId | None,
    asked: MessageId | None | CurrentLeaf,
) -> MessageId | None:
    """The message that new text goes under, checked; ``None`` for a new root."""
    parent_id = current_leaf_id if isinstance(asked, CurrentLeaf) else asked
    if parent_id is None:
        return None
    if isinstance(asked, CurrentLeaf):
        parent_id = select_newest_leaf(tx, owner, conversation_id, parent_id)
    turn_rules.check_text_under(select_message(tx, owner, conversation_id, parent_id))
    return parent_id


def _finalise(tx: sa.Connection, finished: FinishedGeneration) -> None:
    tenant_id = _tenant_of(tx, finished.generation_id)
    if tenant_id is None:
        raise StaleEpoch
    generation = _select(tx, tenant_id, finished.generation_id)
    if generation.status.terminal:
        raise StaleEpoch
    ended = turn_rules.finished_generation(generation, finished)
    changes = changed_values(rows.generation_values(generation), rows.generation_values(ended))
    if _end.run(tx, changes, {"tenant_id": tenant_id, "id": generation.id, "epoch": finished.epoch}) != 1:
        raise StaleEpoch
    owner = Owner(tenant_id, generation.user_id)
    message = select_message(tx, owner, generation.conversation_id, generation.message_id)
    update_message(tx, tenant_id, message, turn_rules.finished_message(message, finished))
    now_ms = to_ms(finished.now)
    place = {"tenant_id": tenant_id, "id": generation.conversation_id}
    head = _select_place.run(tx, place).one()
    if head.updated_at < now_ms:
        _move_up.run(tx, {"updated_at": now_ms}, place)
    if not head.temporary:
        search.put(tx, owner, generation.conversation_id, message.id, message.content, finished.text)
    add_usage(tx, tenant_id, generation.id, finished.outbox_payload, now_ms)


def add_usage(tx: sa.Connection, tenant_id: TenantId, generation_id: GenerationId, payload: str, now_ms: int) -> None:
    """What a generation cost, on its way to the ledger."""
    record: dict[str, Value] = {"kind": "usage", "dedup_key": generation_id, "payload": payload, "created_at": now_ms, "attempts": 0}
    _add_to_outbox.run(tx, {"tenant_id": tenant_id, **record})


def _select_replay(tx: sa.Connection, wanted: IdempotencyKey, now: datetime) -> Accepted | None:
    row = _find_replay.run(tx, {"scope": wanted.scope, "key": wanted.key}).one_or_none()
    if row is None or row.expires_at <= to_ms(now):
        return None
    if row.fingerprint != wanted.fingerprint:
        raise IdempotencyMismatch
    return Accepted(row.conversation_id, row.user_message_id, row.message_id, row.generation_id, replayed=True)


def _insert_replay(tx: sa.Connection, tenant_id: TenantId, key: IdempotencyKey, accepted: Accepted, now: datetime) -> None:
    """Keep the answer, and drop the tenant's answers that have expired, so that the table stays small without a sweeper."""
    _drop_expired.run(tx, {"tenant_id": tenant_id, "now_ms": to_ms(now)})
    values: dict[str, Value] = {
        "scope": key.scope,
        "key": key.key,
        "tenant_id": tenant_id,
        "fingerprint": key.fingerprint,
        "conversation_id": accepted.conversation_id,
        "user_message_id": accepted.user_message_id,
        "message_id": accepted.message_id,
        "generation_id": accepted.generation_id,
        "expires_at": to_ms(key.expires_at),
    }
    _insert_answer.run(tx, values)


def _update_held(tx: sa.Connection, generation_id: GenerationId, epoch: int, values: Mapping[str, Value]) -> TenantId:
    """Change a generation that ``epoch`` still runs; raises ``StaleEpoch``. Returns its tenant."""
    tenant_id = _tenant_of(tx, generation_id)
    if tenant_id is None:
        raise StaleEpoch
    if _update_held_row.run(tx, values, {"tenant_id": tenant_id, "id": generation_id, "epoch": epoch}) != 1:
        raise StaleEpoch
    return tenant_id


def _tenant_of(tx: sa.Connection, generation_id: GenerationId) -> TenantId | None:
    return _select_tenant.run(tx, {"id": generation_id}).scalar_one_or_none()


def _select(tx: sa.Connection, tenant_id: TenantId, generation_id: GenerationId) -> Generation:
    return rows.generation_of(_select_named.run(tx, {"tenant_id": tenant_id, "id": generation_id}).one())


def _select_owned(tx: sa.Connection, owner: Owner, generation_id: GenerationId) -> Generation:
    row = _select_named.run(tx, {"tenant_id": owner.tenant_id, "id": generation_id}).one_or_none()
    if row is None:
        raise NotFound
    select_head(tx, owner, row.conversation_id)
    return rows.generation_of(row)


def _named(tenant_id: TenantId, generation_id: GenerationId) -> tuple[sa.ColumnElement[bool], ...]:
    return generations.c.tenant_id == tenant_id, generations.c.id == generation_id


def _open() -> sa.ColumnElement[bool]:
    return _IS_OPEN
