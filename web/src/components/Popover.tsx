import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId, useRef } from "preact/hooks";

/** Puts an open popover beside its button, inside the window. */
export function placeBeside(button: HTMLElement | null, panel: HTMLElement | null, side: "below" | "above"): void {
  const from = button?.getBoundingClientRect();
  if (!from || !panel) return;
  const { offsetWidth: width, offsetHeight: height } = panel;
  const below = side === "below" ? from.bottom + height + 8 < innerHeight || from.top < height : from.top < height + 8;
  const start = document.documentElement.dir === "rtl" ? from.right - width : from.left;
  panel.style.left = `${Math.max(8, Math.min(start, innerWidth - width - 8))}px`;
  panel.style.top = `${below ? Math.min(from.bottom + 4, innerHeight - height - 8) : Math.max(8, from.top - height - 4)}px`;
}

interface PopoverProps {
  label: string;
  className: string;
  button: ComponentChildren;
  panelClass?: string;
  side?: "below" | "above";
  testid?: string;
  opened?(): void;
  children: ComponentChildren;
}

/** A button that opens a small panel in the top layer: Esc and a click elsewhere close it. A closed one has nothing in the page. */
export function Popover({ label, className, button, panelClass = "", side = "below", testid, opened, children }: PopoverProps) {
  const id = useId();
  const from = useRef<HTMLButtonElement>(null);
  const panel = useRef<HTMLDivElement>(null);
  const shown = useSignal(false);
  const toggled = (event: { newState: string }) => {
    shown.value = event.newState === "open";
    from.current?.setAttribute("aria-expanded", String(shown.value));
    if (!shown.value) return;
    opened?.();
    placeBeside(from.current, panel.current, side);
    requestAnimationFrame(() => placeBeside(from.current, panel.current, side));
    panel.current?.focus({ preventScroll: true });
  };
  return (
    <>
      <button ref={from} type="button" class={className} data-testid={testid} aria-label={label} title={label} aria-haspopup="dialog" aria-expanded="false" aria-controls={id} onClick={() => panel.current?.togglePopover()}>
        {button}
      </button>
      <div ref={panel} id={id} class={`menu panel ${panelClass}`} role="dialog" aria-label={label} tabIndex={-1} popover="auto" onBeforeToggle={(event) => event.newState === "open" && (shown.value = true)} onToggle={toggled}>
        {shown.value && children}
      </div>
    </>
  );
}

/** Closes the popover that holds an element. */
export function closePopover(element: EventTarget | null): void {
  if (element instanceof Element) element.closest<HTMLElement>("[popover]")?.hidePopover();
}
