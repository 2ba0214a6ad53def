import { useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren, RefObject } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";

type Side = "below" | "above";

/** Puts an open popover beside its button, inside the window. */
function placeBeside(button: HTMLElement | null, panel: HTMLElement, side: Side): void {
  const from = button?.getBoundingClientRect();
  if (!from) return;
  const { offsetWidth: width, offsetHeight: height } = panel;
  const below = side === "below" ? from.bottom + height + 8 < innerHeight || from.top < height : from.top < height + 8;
  const start = document.documentElement.dir === "rtl" ? from.right - width : from.left;
  panel.style.left = `${Math.max(8, Math.min(start, innerWidth - width - 8))}px`;
  // Held where it meets the button: what is in it may still grow.
  panel.style.top = below ? `${Math.min(from.bottom + 4, innerHeight - height - 8)}px` : "auto";
  panel.style.bottom = below ? "auto" : `${Math.min(innerHeight - from.top + 4, innerHeight - height - 8)}px`;
}

export interface Opening {
  readonly open: Signal<boolean>;
  readonly button: RefObject<HTMLButtonElement | null>;
  readonly id: string;
  pressed(event: MouseEvent): void;
  pointed(): void;
  closed(): void;
}

/** What a button and the panel it opens have in common. A closed panel has nothing in the page. */
export function useOpening(): Opening {
  const open = useSignal(false);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  const closing = useRef(false);
  return {
    open,
    button,
    id,
    // A pointer that goes down anywhere closes the panel; on its own button the press that follows must not open it again.
    pointed: () => (closing.current = open.peek()),
    closed: () => (open.value = false),
    pressed: (event) => {
      event.preventDefault();
      event.stopPropagation();
      open.value = !open.peek() && !closing.current;
      closing.current = false;
    },
  };
}

interface PanelProps {
  button: HTMLElement | null;
  id: string;
  closed(): void;
  role: "menu" | "dialog";
  label: string;
  className: string;
  side: Side;
  /** It is in its place; the focus goes where this says, else to the panel. */
  shown(panel: HTMLElement): HTMLElement | null;
  keys?(event: KeyboardEvent, panel: HTMLElement): void;
  children: ComponentChildren;
}

/** An open panel in the top layer: Esc and a press elsewhere close it, and the focus goes back. */
export function Panel({ button, id, closed, role, label, className, side, shown, keys, children }: PanelProps) {
  const panel = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = panel.current;
    if (!element) return;
    element.showPopover();
    placeBeside(button, element, side);
    (shown(element) ?? element).focus({ preventScroll: true });
    requestAnimationFrame(() => placeBeside(button, element, side));
  }, []);
  return (
    <div
      ref={panel}
      id={id}
      class={className}
      role={role}
      aria-label={label}
      tabIndex={-1}
      popover="auto"
      onToggle={(event) => event.newState === "closed" && closed()}
      onKeyDown={(event) => panel.current && keys?.(event, panel.current)}
    >
      {children}
    </div>
  );
}

interface PopoverProps {
  label: string;
  className: string;
  button: ComponentChildren;
  panelClass?: string;
  side?: Side;
  testid?: string;
  opened?(): void;
  /** What gets the focus, in CSS. */
  focus?: string;
  children: ComponentChildren;
}

/** A button that opens a small panel. */
export function Popover({ label, className, button, panelClass = "", side = "below", testid, opened, focus, children }: PopoverProps) {
  const opening = useOpening();
  return (
    <>
      <button
        ref={opening.button}
        type="button"
        class={className}
        data-testid={testid}
        aria-label={label}
        title={label}
        aria-haspopup="dialog"
        aria-expanded={opening.open.value}
        aria-controls={opening.open.value ? opening.id : undefined}
        onPointerDown={opening.pointed}
        onClick={opening.pressed}
      >
        {button}
      </button>
      {opening.open.value && (
        <Panel
          button={opening.button.current}
          id={opening.id}
          closed={opening.closed}
          role="dialog"
          label={label}
          className={`menu panel ${panelClass}`}
          side={side}
          shown={(panel) => {
            opened?.();
            return focus ? panel.querySelector<HTMLElement>(focus) : null;
          }}
        >
          {children}
        </Panel>
      )}
    </>
  );
}

/** Closes the popover that holds an element. */
export function closePopover(element: EventTarget | null): void {
  if (element instanceof Element) element.closest<HTMLElement>("[popover]")?.hidePopover();
}
