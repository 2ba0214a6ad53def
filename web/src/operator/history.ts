import { signal } from "@preact/signals";
import { Problem, read } from "../api";

/** Samples of the last minutes, one each tick, for the small multiples. */

export interface Replica {
  id: string;
  pid: number | null;
  state: string;
  running: number;
  waiting: number;
  blocks: { free: number; held: number; cached: number };
  tok_s: number;
}

export interface Pool {
  name: string;
  queue: { band: string; waiting: number }[];
  replicas: Replica[];
  /** Of its model in memory: `resident`, `loading`, `leaving`, `unloading` or `absent`. */
  presence?: string;
  /** Why a replica whose last start went wrong is not ready, in the server's words. */
  trouble?: string | null;
}

export interface Series {
  waiting: number[];
  running: number[];
  tokens: number[];
  blocks: number[];
  ttft: number[];
  shed: number[];
  downgrades: number[];
}

const TICK_MS = 1000;
const KEPT = 120;

export const pools = signal<readonly Pool[]>([]);
export const series = signal<Record<string, Series>>({});
export const fault = signal<Problem | null>(null);

function empty(): Series {
  return { waiting: [], running: [], tokens: [], blocks: [], ttft: [], shed: [], downgrades: [] };
}

/** Sums of a metric by pool, from Prometheus' text format. */
export function sumByPool(text: string, metric: string): Map<string, number> {
  const sums = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (!line.startsWith(metric)) continue;
    const found = /^([a-z_]+)(?:\{([^}]*)\})? ([\d.eE+-]+|NaN)/.exec(line);
    if (!found || found[1] !== metric) continue;
    const pool = /pool="([^"]*)"/.exec(found[2] ?? "")?.[1] ?? "";
    sums.set(pool, (sums.get(pool) ?? 0) + Number(found[3]));
  }
  return sums;
}

interface Counters {
  ttftSum: Map<string, number>;
  ttftCount: Map<string, number>;
  shed: Map<string, number>;
  downgrades: Map<string, number>;
}

let before: Counters | undefined;

function countersOf(text: string): Counters {
  return {
    ttftSum: sumByPool(text, "antiphon_time_to_first_token_seconds_sum"),
    ttftCount: sumByPool(text, "antiphon_time_to_first_token_seconds_count"),
    shed: sumByPool(text, "antiphon_shed_total"),
    downgrades: sumByPool(text, "antiphon_downgrades_total"),
  };
}

function grown(now: Map<string, number>, then: Map<string, number> | undefined, pool: string): number {
  const key = now.has(pool) ? pool : "";
  return Math.max(0, (now.get(key) ?? 0) - (then?.get(key) ?? now.get(key) ?? 0));
}

async function sample(): Promise<void> {
  const [found, text] = await Promise.all([
    read<Pool[]>("/v1/admin/pools"),
    fetch("/metrics", { cache: "no-store", credentials: "same-origin" }).then(
      (answer) => (answer.ok ? answer.text() : ""),
      () => "",
    ),
  ]);
  const now = countersOf(text);
  const next: Record<string, Series> = {};
  for (const pool of found) {
    const old = series.peek()[pool.name] ?? empty();
    const sum = (of: (replica: Replica) => number) => pool.replicas.reduce((total, replica) => total + of(replica), 0);
    const all = sum((one) => one.blocks.free + one.blocks.held + one.blocks.cached);
    const answered = grown(now.ttftCount, before?.ttftCount, pool.name);
    const point = {
      waiting: pool.queue.reduce((total, band) => total + band.waiting, 0),
      running: sum((one) => one.running),
      tokens: sum((one) => one.tok_s),
      blocks: all === 0 ? 0 : sum((one) => one.blocks.held) / all,
      ttft: answered === 0 ? (old.ttft.at(-1) ?? 0) : (1000 * grown(now.ttftSum, before?.ttftSum, pool.name)) / answered,
      shed: grown(now.shed, before?.shed, pool.name),
      downgrades: grown(now.downgrades, before?.downgrades, pool.name),
    };
    const series_ = empty();
    for (const key of Object.keys(point) as (keyof Series)[]) series_[key] = [...old[key], point[key]].slice(-KEPT);
    next[pool.name] = series_;
  }
  before = now;
  pools.value = found;
  series.value = next;
}

/** Reads once a second while the page is looked at; returns what ends it. */
export function watchPools(): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let open = true;
  const tick = async () => {
    if (!document.hidden) {
      try {
        await sample();
        fault.value = null;
      } catch (error) {
        fault.value = error instanceof Problem ? error : new Problem(0, "internal", "");
      }
    }
    if (open) timer = setTimeout(() => void tick(), TICK_MS);
  };
  void tick();
  return () => {
    open = false;
    clearTimeout(timer);
  };
}
