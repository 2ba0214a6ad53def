import type { ComponentChildren } from "preact";
import { Icon, type IconName } from "./Icon";
import { closePopover, Panel, useOpening } from "./Popover";

export interface MenuItem {
  label: string;
  detail?: string;
  icon?: IconName;
  checked?: boolean;
  danger?: boolean;
  disabled?: boolean;
  testid?: string;
  /** A bar below the words: how much of something is used, 0 to 1. */
  share?: number | undefined;
  run(): void;
}

interface MenuProps {
  label: string;
  className: string;
  /** Asked for when the menu opens. */
  items(): readonly MenuItem[];
  children: ComponentChildren;
  /** Where the menu opens: below the button, or above it. */
  side?: "below" | "above";
  /** The menu is about to open. */
  opened?(): void;
}

function enabled(list: HTMLElement): HTMLElement[] {
  return [...list.querySelectorAll<HTMLElement>("[role^=menuitem]:not(:disabled)")];
}

/** Arrows, Home and End move from item to item. */
function move(event: KeyboardEvent, list: HTMLElement): void {
  const all = enabled(list);
  const at = all.indexOf(document.activeElement as HTMLElement);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
  if (next === undefined || all.length === 0) return;
  event.preventDefault();
  all[next % all.length]?.focus();
}

function Item({ item }: { item: MenuItem }) {
  return (
    <button
      type="button"
      role={item.checked === undefined ? "menuitem" : "menuitemradio"}
      aria-checked={item.checked}
      data-testid={item.testid}
      disabled={item.disabled}
      class={item.danger ? "menu-item danger" : "menu-item"}
      onClick={(event) => {
        event.stopPropagation();
        closePopover(event.currentTarget);
        item.run();
      }}
    >
      {item.icon && <Icon name={item.icon} size={16} />}
      <span class="menu-text">
        {item.label}
        {item.detail && <small>{item.detail}</small>}
        {item.share !== undefined && <progress value={item.share} max={1} data-full={item.share > 0.9 ? "" : undefined} aria-hidden="true" />}
      </span>
      {item.checked && <Icon name="check" size={16} />}
    </button>
  );
}

interface MenuPanelProps {
  button: HTMLElement | null;
  id: string;
  closed(): void;
  label: string;
  side: "below" | "above";
  items: readonly MenuItem[];
  opened?(): void;
}

/** An open menu. */
export function MenuPanel({ button, id, closed, label, side, items, opened }: MenuPanelProps) {
  const shown = (list: HTMLElement) => {
    opened?.();
    return enabled(list)[0] ?? null;
  };
  return (
    <Panel button={button} id={id} closed={closed} role="menu" label={label} className="menu" side={side} shown={shown} keys={move}>
      {items.map((item) => (
        <Item key={item.label} item={item} />
      ))}
    </Panel>
  );
}

/** A button that opens a menu. */
export function Menu({ label, className, items, children, side = "below", opened }: MenuProps) {
  const opening = useOpening();
  return (
    <>
      <button
        ref={opening.button}
        type="button"
        class={className}
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={opening.open.value}
        aria-controls={opening.open.value ? opening.id : undefined}
        onPointerDown={opening.pointed}
        onClick={opening.pressed}
      >
        {children}
      </button>
      {opening.open.value && (
        <MenuPanel button={opening.button.current} id={opening.id} closed={opening.closed} label={label} side={side} items={items()} {...(opened ? { opened } : {})} />
      )}
    </>
  );
}
