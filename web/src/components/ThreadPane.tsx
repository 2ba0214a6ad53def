import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { ScrollKeeper } from "../scroll";
import type { MessageView } from "../state/message";
import type { Thread } from "../state/thread";
import { Icon } from "./Icon";
import { AssistantMessage, UserMessage } from "./Message";
import { LeftOut } from "./Outcome";

interface Exchange {
  key: string;
  views: MessageView[];
}

/** A user message and the answer to it stand together, so that the newest pair can fill the screen. */
function exchanges(views: readonly MessageView[]): Exchange[] {
  const result: Exchange[] = [];
  for (const view of views) {
    const last = result.at(-1);
    if (view.data.value.role === "user" || !last) result.push({ key: view.key, views: [view] });
    else last.views.push(view);
  }
  return result;
}

/** The newest exchange for which the model read less than what is above it, where that is on the screen. */
function firstLeftOut(list: readonly Exchange[]): number {
  return list.findLastIndex((exchange) => (exchange.views.at(-1)?.data.value.context?.omitted ?? 0) > 0);
}

/** Earlier messages come by themselves when their place is nearly on the screen; a button does it for who uses no pointer. */
function Earlier({ load }: { load(): void }) {
  const mark = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!mark.current) return undefined;
    const pane = mark.current.closest(".pane");
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && load(), { root: pane, rootMargin: "600px 0px 0px" });
    // Not before the pane has gone to its end: its beginning is on the screen for a moment.
    const timer = setTimeout(() => mark.current && observer.observe(mark.current), 400);
    return () => {
      clearTimeout(timer);
      observer.disconnect();
    };
  }, []);
  return (
    <button ref={mark} type="button" class="button earlier" onClick={load}>
      {t("showEarlier")}
    </button>
  );
}

export function ThreadPane({ thread }: { thread: Thread }) {
  const pane = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const keeper = useRef<ScrollKeeper>(undefined);
  const away = useSignal(false);
  const fresh = useSignal(false);
  const list = useComputed(() => exchanges(thread.views.value));
  const anchor = thread.anchor.value;
  const count = thread.views.value.length;
  const leftOut = firstLeftOut(list.value);

  useEffect(() => {
    if (!pane.current || !inner.current) return undefined;
    const made = new ScrollKeeper(pane.current, inner.current, (far, grown) => {
      away.value = far;
      fresh.value = far && (fresh.value || grown);
    });
    keeper.current = made;
    return () => made.close();
  }, []);

  useLayoutEffect(() => {
    if (count > 0) keeper.current?.toEnd(false);
  }, [thread, count > 0]);

  useLayoutEffect(() => {
    if (anchor !== null) keeper.current?.toEnd(true);
  }, [anchor, list.value.at(-1)?.views.at(-1)?.key]);

  const earlier = async () => {
    const keep = keeper.current?.hold();
    await thread.loadEarlier();
    requestAnimationFrame(() => keep?.());
  };

  return (
    <div class="pane-wrap">
      <div ref={pane} class="pane" tabIndex={-1}>
        <div ref={inner} class="column thread">
          {thread.earlier.value !== null && <Earlier key={thread.earlier.value} load={() => void earlier()} />}
          {list.value.map((exchange, at) => (
            <section key={exchange.key} class={at === list.value.length - 1 && anchor === exchange.key ? "exchange anchored" : "exchange"}>
              {at === leftOut && exchange.views.at(-1) && <LeftOut view={exchange.views.at(-1) as MessageView} />}
              {exchange.views.map((view) =>
                view.data.value.role === "user" ? <UserMessage key={view.key} view={view} thread={thread} /> : <AssistantMessage key={view.key} view={view} thread={thread} />,
              )}
            </section>
          ))}
          <Unanswered thread={thread} />
        </div>
      </div>
      <button
        type="button"
        class={`to-end${away.value ? " shown" : ""}${fresh.value ? " fresh" : ""}`}
        aria-label={t("goToEnd")}
        tabIndex={away.value ? 0 : -1}
        onClick={() => keeper.current?.toEnd(true)}
      >
        <Icon name="down" />
      </button>
    </div>
  );
}

/** A path that ends with a user message (an import, or a send whose answer is gone) offers to answer it. */
function Unanswered({ thread }: { thread: Thread }) {
  const last = thread.views.value.at(-1);
  if (!last || last.data.value.role !== "user") return null;
  return (
    <button type="button" class="button" data-testid="regenerate" onClick={() => void thread.regenerate(last)}>
      {t("answerMessage")}
    </button>
  );
}
