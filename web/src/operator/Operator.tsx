import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Icon } from "../components/Icon";
import { LoadingBar } from "../components/LoadingBar";
import { stateOf } from "../components/ModelPicker";
import { t, type Key } from "../i18n";
import { measured, number, percent } from "../i18n/format";
import { allModels, refreshModels } from "../state/session";
import { sidebarShown, toggleSidebar } from "../state/sidebar";
import { Chart } from "./Chart";
import { fault, pools, series, watchPools, type Pool, type Replica } from "./history";
import { names, People } from "./People";
import { Tables } from "./Tables";
import "../styles/operator.css";

function ReplicaLine({ replica }: { replica: Replica }) {
  const all = replica.blocks.free + replica.blocks.held + replica.blocks.cached;
  return (
    <tr>
      <th scope="row">
        <span class={`state-dot ${replica.state === "ready" ? "ready" : replica.state === "dead" || replica.state === "down" ? "down" : "loading"}`} aria-hidden="true" /> {replica.id}
      </th>
      <td>{replica.state}</td>
      <td>{number(replica.running)}</td>
      <td>{number(replica.waiting)}</td>
      <td>{number(Math.round(replica.tok_s))}</td>
      <td>
        <meter class="blocks" min={0} max={Math.max(1, all)} value={replica.blocks.held + replica.blocks.cached} aria-label={t("blocks")} />
        <small>{t("blocksOf", number(replica.blocks.held), number(replica.blocks.cached), number(replica.blocks.free))}</small>
      </td>
    </tr>
  );
}

/** What is said of a model that is not simply there. */
const PRESENCES: Record<string, Key> = { absent: "presenceAbsent", leaving: "presenceLeaving", unloading: "presenceUnloading" };

function PoolCard({ pool }: { pool: Pool }) {
  const past = series.value[pool.name];
  const model = allModels.value.find((one) => one.id === pool.name);
  const presence = PRESENCES[pool.presence ?? ""];
  const state = presence ? { words: t(presence), kind: "away" } : model ? stateOf(model) : null;
  if (!past) return null;
  const last = (values: readonly number[]) => values.at(-1) ?? 0;
  const total = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0);
  return (
    <section class="pool" data-testid="pool" aria-label={pool.name}>
      <h2>
        {pool.name}
        {model?.model && model.model !== pool.name && <small>{model.model}</small>}
        {state && <small class={`state-words ${state.kind}`}>{state.words}</small>}
      </h2>
      {model && <LoadingBar model={model} />}
      {pool.trouble && <p class="trouble own">{pool.trouble}</p>}
      <div class="charts">
        <Chart name={t("waitingChart")} values={past.waiting} shown={number(last(past.waiting))} />
        <Chart name={t("runningChart")} values={past.running} shown={number(last(past.running))} />
        <Chart name={t("tokensChart")} values={past.tokens} shown={number(Math.round(last(past.tokens)))} />
        <Chart name={t("blocksChart")} values={past.blocks} shown={percent(last(past.blocks))} top={1} />
        <Chart name={t("ttftChart")} values={past.ttft} shown={last(past.ttft) === 0 ? "—" : measured(last(past.ttft))} />
        <Chart name={t("shedChart")} values={past.shed} shown={number(total(past.shed))} of={t("lastMinutes", 2)} />
        <Chart name={t("downgradesChart")} values={past.downgrades} shown={number(total(past.downgrades))} of={t("lastMinutes", 2)} />
      </div>
      <ul class="bands" aria-label={t("waitingChart")}>
        {pool.queue.map((band) => (
          <li key={band.band}>
            {band.band} <b>{number(band.waiting)}</b>
          </li>
        ))}
      </ul>
      <div class="scroll-x" tabIndex={0} role="group" aria-label={t("replicas")} hidden={pool.replicas.length === 0}>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("replica")}</th>
              <th scope="col">{t("state")}</th>
              <th scope="col">{t("runningChart")}</th>
              <th scope="col">{t("waitingChart")}</th>
              <th scope="col">{t("tokensChart")}</th>
              <th scope="col">{t("blocks")}</th>
            </tr>
          </thead>
          <tbody>
            {pool.replicas.map((replica) => (
              <ReplicaLine key={replica.id} replica={replica} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** What the operator sees: pools and replicas live, people and keys, what was used, what was done. */
export function Operator() {
  const heading = useRef<HTMLHeadingElement>(null);
  const ready = useSignal(false);
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
    ready.value = true;
    const end = watchPools();
    const models = setInterval(() => void refreshModels(), 3000);
    return () => {
      end();
      clearInterval(models);
    };
  }, []);
  const problem = fault.value;
  return (
    <main class="main operator" id="main">
      <header class="topbar">
        <button type="button" class={sidebarShown.value ? "ghost only-narrow" : "ghost"} aria-label={t("showSidebar")} aria-controls="sidebar" onClick={toggleSidebar}>
          <Icon name="sidebar" size={20} />
        </button>
        <h1 ref={heading} tabIndex={-1}>
          {t("operator")}
        </h1>
      </header>
      <div class="operator-body">
        {problem && <p class="fault">{problem.status === 403 ? t("notAllowed") : problem.message || t("unreachable")}</p>}
        {pools.value.map((pool) => (
          <PoolCard key={pool.name} pool={pool} />
        ))}
        <People />
        <Tables names={names.value} />
      </div>
      <div class="visually-hidden" role="status" aria-live="polite" />
    </main>
  );
}
