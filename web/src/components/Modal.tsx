import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { t } from "../i18n";
import { Icon } from "./Icon";

interface ModalProps {
  title: string;
  /** A class beside `dialog`, for its size. */
  kind?: string;
  /** Without it there is no close button: the children bring one. */
  plain?: boolean;
  close(): void;
  children: ComponentChildren;
}

/** A dialog in the top layer that keeps the focus; Esc and a click beside it close it, and the focus goes back to where it was. */
export function Modal({ title, kind = "", plain = false, close, children }: ModalProps) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    box.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
  return (
    <dialog
      ref={box}
      class={`dialog ${kind}`}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onMouseDown={(event) => event.target === box.current && close()}
    >
      <div class="dialog-body">
        <div class={plain ? "visually-hidden" : "dialog-head"}>
          <h2 id={id}>{title}</h2>
          {!plain && (
            <button type="button" class="ghost" aria-label={t("close")} onClick={close}>
              <Icon name="close" />
            </button>
          )}
        </div>
        {children}
      </div>
    </dialog>
  );
}
