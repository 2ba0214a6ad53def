import type { ComponentChildren } from "preact";

/** One setting: its name, a sentence about it, and its control. */
export function Line({ name, note, children }: { name: string; note?: string; children: ComponentChildren }) {
  return (
    <div class="setting">
      <span class="menu-text">
        {name}
        {note && <small>{note}</small>}
      </span>
      {children}
    </div>
  );
}

interface ChoiceProps<T extends string> {
  name: string;
  note?: string;
  value: T;
  options: readonly (readonly [T, string])[];
  choose(value: T): void;
}

export function Choice<T extends string>({ name, note, value, options, choose }: ChoiceProps<T>) {
  return (
    <Line name={name} {...(note ? { note } : {})}>
      <select class="field" aria-label={name} value={value} onChange={(event) => choose(event.currentTarget.value as T)}>
        {options.map(([key, words]) => (
          <option key={key} value={key}>
            {words}
          </option>
        ))}
      </select>
    </Line>
  );
}

export function Switch({ name, note, on, turn }: { name: string; note?: string; on: boolean; turn(on: boolean): void }) {
  return (
    <Line name={name} {...(note ? { note } : {})}>
      <button type="button" class="switch" role="switch" aria-checked={on} aria-label={name} onClick={() => turn(!on)}>
        <span aria-hidden="true" />
      </button>
    </Line>
  );
}
