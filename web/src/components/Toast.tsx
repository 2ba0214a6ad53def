import { t } from "../i18n";
import { hideToast, pauseToast, resumeToast, toast } from "../state/toast";
import { Icon } from "./Icon";

/** Above everything, an open dialog too. */
function raise(element: HTMLElement | null): void {
  if (element && !element.matches(":popover-open")) element.showPopover();
}

/** One short notice at a time; the announcer of the page tells it to screen readers. */
export function Toast() {
  const shown = toast.value;
  if (!shown) return null;
  return (
    <div key={shown.id} ref={raise} popover="manual" class="toast" data-testid="toast" onMouseEnter={pauseToast} onMouseLeave={resumeToast} onFocusIn={pauseToast} onFocusOut={resumeToast}>
      <span>{shown.text}</span>
      {shown.action && (
        <button
          type="button"
          class="toast-action"
          onClick={() => {
            const run = shown.action?.run;
            hideToast();
            run?.();
          }}
        >
          {shown.action.label}
        </button>
      )}
      <button type="button" class="action" aria-label={t("dismiss")} onClick={hideToast}>
        <Icon name="close" size={14} />
      </button>
    </div>
  );
}
