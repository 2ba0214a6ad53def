import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { t } from "../i18n";
import { showToast } from "../state/toast";

interface LazyProps<P> {
  /** Imports the part's code. */
  load(): Promise<ComponentType<P>>;
  props: P;
  /** The code cannot be had; whoever asked for it gives up. */
  failed(): void;
}

/** A part of the page whose code comes when it is first shown. */
export function Lazy<P extends object>({ load, props, failed }: LazyProps<P>) {
  const found = useSignal<ComponentType<P> | null>(null);
  useEffect(() => {
    let here = true;
    load().then(
      (part) => here && (found.value = part),
      () => {
        showToast(t("partFailed"));
        failed();
      },
    );
    return () => void (here = false);
  }, []);
  const Part = found.value;
  return Part ? <Part {...props} /> : null;
}
