import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId, useRef } from "preact/hooks";
import { Icon, type IconName } from "./Icon";
import { placeBeside } from "./Popover";

export interface MenuItem {
  label: string;
  detail?: string;
  icon?: IconName;
  checked?: boolean;
  danger?: boolean;
  disabled?: boolean;
  testid?: string;
  run(): void;
}

interface MenuProps {
  label: string;
  className: string;
  /** Asked for when the menu opens; a closed one has nothing in the page. */
  items(): readonly MenuItem[];
  children: ComponentChildren;
  /** Where the menu opens: below the button, or above it. */
  side?: "below" | "above";
}

/** A button that opens a menu in the top layer: Esc and a click elsewhere close it, arrows, Home and End move. */
export function Menu({ label, className, items, children, side = "below" }: MenuProps) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);

  const shown = useSignal(false);

  const toggled = (event: { newState: string }) => {
    shown.value = event.newState === "open";
    button.current?.setAttribute("aria-expanded", String(shown.value));
    if (!shown.value) return;
    placeBeside(button.current, list.current, side);
    list.current?.querySelector<HTMLElement>("[role^=menuitem]:not(:disabled)")?.focus({ preventScroll: true });
  };

  const move = (event: KeyboardEvent) => {
    const all = [...(list.current?.querySelectorAll<HTMLElement>("[role^=menuitem]:not(:disabled)") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined || all.length === 0) return;
    event.preventDefault();
    all[next % all.length]?.focus();
  };

  const choose = (item: MenuItem) => {
    list.current?.hidePopover();
    item.run();
  };

  const open = (event: MouseEvent) => {
    event.preventDefault();
    event.stopPropagation();
    list.current?.togglePopover();
  };

  return (
    <>
      <button ref={button} type="button" class={className} aria-label={label} aria-haspopup="menu" aria-expanded="false" aria-controls={id} onClick={open}>
        {children}
      </button>
      <div ref={list} id={id} class="menu" role="menu" aria-label={label} popover="auto" onBeforeToggle={(event) => event.newState === "open" && (shown.value = true)} onToggle={toggled} onKeyDown={move}>
        {(shown.value ? items() : []).map((item) => (
          <button
            key={item.label}
            type="button"
            role={item.checked === undefined ? "menuitem" : "menuitemradio"}
            aria-checked={item.checked}
            data-testid={item.testid}
            disabled={item.disabled}
            class={item.danger ? "menu-item danger" : "menu-item"}
            onClick={(event) => {
              event.stopPropagation();
              choose(item);
            }}
          >
            {item.icon && <Icon name={item.icon} size={16} />}
            <span class="menu-text">
              {item.label}
              {item.detail && <small>{item.detail}</small>}
            </span>
            {item.checked && <Icon name="check" size={16} />}
          </button>
        ))}
      </div>
    </>
  );
}
