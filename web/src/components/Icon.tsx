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
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width={name === "dots" ? 2.6 : 1.7} stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
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
