import { useSignal } from "@preact/signals";
import { copyText } from "../clipboard";
import { t } from "../i18n";
import { Icon, type IconName } from "./Icon";

interface ActionProps {
  icon: IconName;
  label: string;
  testid?: string;
  run(): void;
  disabled?: boolean;
  pressed?: boolean;
}

/** A small icon button under a message. */
export function Action({ icon, label, testid, run, disabled = false, pressed }: ActionProps) {
  return (
    <button type="button" class="action" data-testid={testid} aria-label={label} title={label} aria-pressed={pressed} disabled={disabled} onClick={run}>
      <Icon name={icon} size={16} />
    </button>
  );
}

export function CopyAction({ text, label = t("copy"), testid = "copy" }: { text: () => string; label?: string; testid?: string }) {
  const state = useSignal<"idle" | "done" | "refused">("idle");
  const copy = async () => {
    state.value = (await copyText(text())) ? "done" : "refused";
    setTimeout(() => (state.value = "idle"), 2000);
  };
  const shown = state.value === "done" ? t("copied") : state.value === "refused" ? t("copyRefused") : label;
  return <Action icon={state.value === "done" ? "check" : state.value === "refused" ? "alert" : "copy"} label={shown} testid={testid} run={() => void copy()} />;
}
