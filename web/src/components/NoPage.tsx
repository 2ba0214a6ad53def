import { t } from "../i18n";
import { Logo } from "./Icon";

/** An address that leads nowhere. */
export function NoPage() {
  return (
    <main class="gate">
      <Logo size={40} />
      <h1>{t("pageMissing")}</h1>
      <p>{t("pageMissingText")}</p>
      <a class="button primary" href="/">
        {t("toChats")}
      </a>
    </main>
  );
}
