import { t } from "../i18n";
import { changeSettings, settings } from "../state/settings";
import { showToast } from "../state/toast";
import { Choice, Switch } from "./Line";

/** The browser asks the person first. */
async function turnNotify(on: boolean): Promise<void> {
  const granted = !on || (await Notification.requestPermission()) === "granted";
  if (granted) changeSettings({ notify: on });
  else showToast(t("notifyRefused"));
}

export function GeneralTab() {
  const now = settings.value;
  return (
    <>
      <Choice
        name={t("theme")}
        value={now.theme}
        options={[
          ["system", t("asSystem")],
          ["light", t("light")],
          ["dark", t("dark")],
        ]}
        choose={(theme) => changeSettings({ theme })}
      />
      <Switch name={t("highContrast")} note={t("highContrastNote")} on={now.contrast === "more"} turn={(on) => changeSettings({ contrast: on ? "more" : "system" })} />
      <Choice
        name={t("language")}
        value={now.language}
        options={[
          ["system", t("asSystem")],
          ["en", "English"],
          ["de", "Deutsch"],
        ]}
        choose={(language) => changeSettings({ language })}
      />
      <Choice
        name={t("sendKey")}
        note={t("sendKeyNote")}
        value={now.send}
        options={[
          ["enter", t("sendEnter")],
          ["mod", t("sendMod")],
        ]}
        choose={(send) => changeSettings({ send })}
      />
      <Switch name={t("wrapCode")} on={now.wrap} turn={(wrap) => changeSettings({ wrap })} />
      {"Notification" in globalThis && <Switch name={t("notify")} note={t("notifyNote")} on={now.notify} turn={(on) => void turnNotify(on)} />}
      <Switch name={t("showHint")} on={now.hint} turn={(hint) => changeSettings({ hint })} />
    </>
  );
}
