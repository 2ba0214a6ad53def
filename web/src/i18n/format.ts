import { language } from "./index";

function tag(): string {
  return language.value === "qps" ? "en" : language.value;
}

export function number(value: number): string {
  return new Intl.NumberFormat(tag(), { maximumFractionDigits: value < 100 && !Number.isInteger(value) ? 1 : 0 }).format(value);
}

/** A share of 1, as whole percent. */
export function percent(share: number): string {
  return new Intl.NumberFormat(tag(), { style: "percent" }).format(share);
}

export function bytes(value: number): string {
  const [size, unit] = value < 1000 ? [value, "byte"] : value < 1e6 ? [value / 1000, "kilobyte"] : [value / 1e6, "megabyte"];
  return new Intl.NumberFormat(tag(), { style: "unit", unit: unit as string, unitDisplay: "short", maximumFractionDigits: 1 }).format(size as number);
}

/** A wait in the largest fitting unit: "8 sec", "3 min". */
export function duration(ms: number): string {
  const seconds = Math.max(1, Math.round(ms / 1000));
  const [amount, unit] = seconds < 100 ? [seconds, "second"] : seconds < 5400 ? [Math.round(seconds / 60), "minute"] : [Math.round(seconds / 3600), "hour"];
  return new Intl.NumberFormat(tag(), { style: "unit", unit: unit as string, unitDisplay: "short" }).format(amount as number);
}

/** Below a minute with one decimal, for measurements. */
export function measured(ms: number): string {
  if (ms < 1000) return new Intl.NumberFormat(tag(), { style: "unit", unit: "millisecond", unitDisplay: "short", maximumFractionDigits: 0 }).format(ms);
  return new Intl.NumberFormat(tag(), { style: "unit", unit: "second", unitDisplay: "short", maximumFractionDigits: 1 }).format(ms / 1000);
}

export function moment(iso: string): string {
  return new Date(iso).toLocaleString(tag(), { dateStyle: "medium", timeStyle: "short" });
}

export function day(iso: string): string {
  return new Date(iso).toLocaleDateString(tag(), { dateStyle: "medium" });
}

/** "March", or with the year where it is not this one. */
export function month(date: Date, now: Date): string {
  return date.toLocaleDateString(tag(), date.getFullYear() === now.getFullYear() ? { month: "long" } : { month: "long", year: "numeric" });
}
