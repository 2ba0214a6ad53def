import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { isAbsent, read } from "../api";
import { t, type Key } from "../i18n";
import { moment } from "../i18n/format";

type Row = Record<string, unknown>;

interface TableEntry {
  address: string;
  words: Key;
}

/** Each list is shown where the server has it. */
const TABLES: readonly TableEntry[] = [
  { address: "/v1/admin/users", words: "users" },
  { address: "/v1/admin/plans", words: "plans" },
  { address: "/v1/admin/tenants", words: "tenants" },
  { address: "/v1/admin/usage?group_by=user,model", words: "tabUsage" },
  { address: "/v1/keys", words: "keys" },
  { address: "/v1/admin/feedback", words: "feedback" },
  { address: "/v1/admin/audit", words: "audit" },
];

const TIME = /^\d{4}-\d\d-\d\dT/;
const COLUMNS = 8;

function cell(value: unknown): string {
  if (value === null || value === undefined) return "—";
  if (typeof value === "string") return TIME.test(value) ? moment(value) : value;
  if (Array.isArray(value)) return value.map(cell).join(", ");
  if (typeof value === "object") return Object.entries(value).map(([name, one]) => `${name} ${cell(one)}`).join(" · ");
  return String(value);
}

function rowsOf(answer: unknown): Row[] {
  const data: unknown = Array.isArray(answer) ? answer : (answer as { data?: unknown } | null)?.data;
  return Array.isArray(data) ? data.filter((row): row is Row => typeof row === "object" && row !== null) : [];
}

function Table({ entry }: { entry: TableEntry }) {
  const rows = useSignal<Row[] | null>(null);
  const open = useSignal(false);
  const absent = useSignal(true);
  const load = async () => {
    try {
      rows.value = rowsOf(await read(entry.address));
      absent.value = false;
    } catch (error) {
      absent.value = isAbsent(error) || rows.value === null;
    }
  };
  useEffect(() => void load(), []);
  if (absent.value || rows.value === null) return null;
  const columns = [...new Set(rows.value.flatMap((row) => Object.keys(row)))].slice(0, COLUMNS);
  return (
    <details class="pool" open={open.value} onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>
        <h2>
          {t(entry.words)} <small>{rows.value.length}</small>
        </h2>
      </summary>
      <div class="scroll-x" tabIndex={0} role="group" aria-label={t(entry.words)}>
        <table>
          <thead>
            <tr>
              {columns.map((name) => (
                <th key={name} scope="col">
                  {name.replace(/_/g, " ")}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.value.map((row, at) => (
              <tr key={at}>
                {columns.map((name) => (
                  <td key={name} dir="auto">
                    {cell(row[name])}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

export function Tables() {
  return (
    <>
      {TABLES.map((entry) => (
        <Table key={entry.address} entry={entry} />
      ))}
    </>
  );
}
