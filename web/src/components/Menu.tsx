import type { ComponentChildren } from "preact";
import { useId, useRef } from "preact/hooks";
import { Icon, type IconName } from "./Icon";

export interface MenuItem {
  label: string;
  detail?: string;
  icon?: IconName;
  checked?: boolean;
  danger?: boolean;
  run(): void;
}

interface MenuProps {
  label: string;
  className: string;
  items: readonly MenuItem[];
  children: ComponentChildren;
  /** Where the menu opens: below the button, or above it. */
  side?: "below" | "above";
}

/** A button that opens a menu in the top layer: Esc and a click elsewhere close it, arrows move. */
export function Menu({ label, className, items, children, side = "below" }: MenuProps) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);

  const place = () => {
    const [from, menu] = [button.current?.getBoundingClientRect(), list.current];
    if (!from || !menu) return;
    const { offsetWidth: width, offsetHeight: height } = menu;
    const below = side === "below" && from.bottom + height + 8 < innerHeight;
    menu.style.left = `${Math.max(8, Math.min(from.left, innerWidth - width - 8))}px`;
    menu.style.top = `${below ? from.bottom + 4 : Math.max(8, from.top - height - 4)}px`;
  };

  const toggled = (event: { newState: string }) => {
    const shown = event.newState === "open";
    button.current?.setAttribute("aria-expanded", String(shown));
    if (!shown) return;
    place();
    list.current?.querySelector<HTMLElement>("[role^=menuitem]")?.focus({ preventScroll: true });
  };

  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step === 0 || !list.current) return;
    event.preventDefault();
    const all = [...list.current.querySelectorAll<HTMLElement>("[role^=menuitem]")];
    const at = all.indexOf(document.activeElement as HTMLElement);
    all[(at + step + all.length) % all.length]?.focus();
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
      <div ref={list} id={id} class="menu" role="menu" aria-label={label} popover="auto" onToggle={toggled} onKeyDown={move}>
        {items.map((item) => (
          <button
            key={item.label}
            type="button"
            role={item.checked === undefined ? "menuitem" : "menuitemradio"}
            aria-checked={item.checked}
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
