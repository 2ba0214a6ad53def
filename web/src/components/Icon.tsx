const PATHS = {
  plus: "M12 5v14M5 12h14",
  pencil: "M4 20h4L19 9a2.1 2.1 0 0 0-4-4L4 16v4ZM13.5 6.5l4 4",
  compose: "M12 20h8M16.5 4.5a2.1 2.1 0 0 1 3 3L8 19l-4 1 1-4L16.5 4.5Z",
  sidebar: "M5 4.5h14A1.5 1.5 0 0 1 20.5 6v12a1.5 1.5 0 0 1-1.5 1.5H5A1.5 1.5 0 0 1 3.5 18V6A1.5 1.5 0 0 1 5 4.5ZM9 4.5v15",
  send: "M12 19V5M5.5 11.5 12 5l6.5 6.5",
  copy: "M9 9h10.5v10.5H9zM15 9V4.5H4.5V15H9",
  check: "m5 12.5 4.5 4.5L19 7.5",
  refresh: "M20 12a8 8 0 1 1-2.4-5.7M20 4v4.5h-4.5",
  left: "m14.5 6-6 6 6 6",
  right: "m9.5 6 6 6-6 6",
  down: "M12 5v14M5.5 12.5 12 19l6.5-6.5",
  chevron: "m7 10 5 5 5-5",
  dots: "M6 12h.01M12 12h.01M18 12h.01",
  trash: "M4.5 7h15M9.5 7V4.5h5V7M6.5 7l.8 12.5h9.4L17.5 7M10 11v5M14 11v5",
  play: "M8 5.5 18.5 12 8 18.5v-13Z",
  alert: "M12 8.5v4.5M12 16.5h.01M12 3.8 2.8 19.5h18.4L12 3.8Z",
  close: "M6 6l12 12M18 6 6 18",
  out: "M14 4.5h4A1.5 1.5 0 0 1 19.5 6v12a1.5 1.5 0 0 1-1.5 1.5h-4M10 8l-4 4 4 4M6 12h9",
  keys: "M4 7h16v10.5H4zM8 14h8M8 10.5h.01M12 10.5h.01M16 10.5h.01",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM15.5 15.5 20 20",
  pin: "M9 4h6l-.6 5.2 3.1 3.3V14h-11v-1.5l3.1-3.3L9 4ZM12 14v6",
  archive: "M4 5h16v4H4zM5.5 9v10h13V9M10 13h4",
  folder: "M3.5 18.5v-13h6l2 2.5h9v10.5z",
  share: "M12 15V4M8 7.5 12 4l4 3.5M6 11.5H4.5v8h15v-8H18",
  gear: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
  up: "M7 10.5v9H4v-9zM7 10.5 11 4c1.3 0 2.2 1 2 2.3L12.5 10H18a2 2 0 0 1 2 2.3l-1 5.7a2 2 0 0 1-2 1.5H7",
  thumbDown: "M17 13.5v-9h3v9zM17 13.5 13 20c-1.3 0-2.2-1-2-2.3l.5-3.7H6a2 2 0 0 1-2-2.3l1-5.7a2 2 0 0 1 2-1.5h10",
  info: "M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16ZM12 11v5M12 8h.01",
  branch: "M7 4v9M7 20a2.2 2.2 0 1 0 0-4.4A2.2 2.2 0 0 0 7 20ZM17 9.5A2.2 2.2 0 1 0 17 5a2.2 2.2 0 0 0 0 4.5ZM17 9.5c0 3.5-3 4.5-10 6",
  ghost: "M5.5 20V11a6.5 6.5 0 0 1 13 0v9l-2.2-1.6L14.2 20 12 18.4 9.8 20l-2.1-1.6L5.5 20ZM9.8 11h.01M14.2 11h.01",
  clip: "M18.5 11.5 12 18a4.2 4.2 0 0 1-6-6l7-7a2.8 2.8 0 0 1 4 4l-6.8 6.8a1.4 1.4 0 0 1-2-2L14 8",
  file: "M6.5 3.5h7l4 4v13h-11zM13.5 3.5v4h4M9.5 12h5M9.5 15.5h5",
  clock: "M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16ZM12 8v4.5l3 1.7",
  cloudOff: "M4 4l16 16M9 6.5a5 5 0 0 1 8.5 3.2A4 4 0 0 1 19.5 17M16 18H7.5a4 4 0 0 1-1.2-7.8",
  star: "m12 4.5 2.3 4.9 5.2.7-3.8 3.7.9 5.3-4.6-2.6-4.6 2.6.9-5.3L4.5 10.1l5.2-.7z",
  gauge: "M4.5 17a8 8 0 1 1 15 0M12 15l3.5-5",
  speaker: "M4 9.5v5h3.5L12 18.5v-13L7.5 9.5H4ZM15.5 9a4.2 4.2 0 0 1 0 6M18 6.5a7.8 7.8 0 0 1 0 11",
  screen: "M4 5h16v11H4zM9 20h6M12 16v4",
  key: "M8.5 19a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM11.5 12.3 19.5 4.5M16 8l2.5 2.5",
  download: "M12 4v11M7.5 11 12 15.5 16.5 11M5 19.5h14",
  upload: "M12 16V5M7.5 9.5 12 5l4.5 4.5M5 19.5h14",
  sparkle: "M12 4.5 13.7 10l5.3 2-5.3 2L12 19.5 10.3 14 5 12l5.3-2z",
} as const;

export type IconName = keyof typeof PATHS;

/** Arrows that mean a direction of reading turn round with it. */
const DIRECTED = new Set<IconName>(["left", "right", "out", "sidebar", "play"]);

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg class={DIRECTED.has(name) ? "icon directed" : "icon"} width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width={name === "dots" ? 2.6 : 1.7} stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Logo({ size = 28 }: { size?: number }) {
  return (
    <svg class="logo" width={size} height={size} viewBox="0 0 32 32" fill="none" stroke="currentColor" stroke-width="2.6" stroke-linecap="round" aria-hidden="true" focusable="false">
      <path d="M7 12.5v7M13 8v16M19 13.5v5M25 10.5v11" />
    </svg>
  );
}
