interface ChartProps {
  name: string;
  values: readonly number[];
  /** The newest value, in words. */
  shown: string;
  /** The value at the top; without it the greatest one. */
  top?: number;
  /** What the newest value is of, where it is not of now. */
  of?: string;
}

const WIDTH = 120;
const HEIGHT = 34;

/** One small multiple: a name, the newest value, and the last two minutes as a line. */
export function Chart({ name, values, shown, top, of }: ChartProps) {
  const most = top ?? Math.max(1e-9, ...values);
  const step = WIDTH / 119;
  const start = WIDTH - (values.length - 1) * step;
  const points = values.map((value, at) => `${(start + at * step).toFixed(1)},${(HEIGHT - 1 - (HEIGHT - 3) * Math.min(1, value / most)).toFixed(1)}`);
  return (
    <figure class="chart">
      <figcaption>
        {name}
        <span>
          <b>{shown}</b> {of}
        </span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true" focusable="false">
        {points.length > 1 && <polygon class="chart-area" points={`${points[0]?.split(",")[0]},${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`} />}
        {points.length > 1 && <polyline class="chart-line" points={points.join(" ")} />}
      </svg>
    </figure>
  );
}
