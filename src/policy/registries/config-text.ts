/** One setting of a configuration file. */
export interface Setting {
  /** `global`, `remote "origin"`; empty before the first section. */
  readonly section: string;
  readonly key: string;
  readonly value: string;
  /** 1-based. */
  readonly line: number;
}

/**
 * Reads settings of the INI family: npmrc, pip.conf, git config, go env, and the part of TOML that names addresses (sections, `key = "text"`, one-line inline tables).
 * Lines that are none of it are left out: the tools themselves complain about those. Continuation lines (indented, as in pip.conf) belong to the key above.
 */
export function readSettings(text: string): readonly Setting[] {
  const settings: Setting[] = [];
  let section = '';
  let lastKey: string | undefined;
  text.split(/\r?\n/).forEach((raw, index) => {
    const line = index + 1;
    const trimmed = raw.trim();
    if (trimmed === '' || /^[#;]/.test(trimmed)) return;
    const header = /^\[\[?\s*(.*?)\s*\]\]?\s*(?:[#;].*)?$/.exec(trimmed);
    if (header !== null) {
      section = header[1] ?? '';
      lastKey = undefined;
      return;
    }
    const pair = /^([^=]+?)\s*=\s*(.*)$/.exec(trimmed);
    if (pair === null) {
      // A continuation line.
      if (lastKey !== undefined && /^\s/.test(raw)) settings.push({ section, key: lastKey, value: unquote(trimmed), line });
      return;
    }
    const [, key = '', value = ''] = pair;
    const inline = /^\{(.*)\}$/.exec(value);
    if (inline !== null) {
      const table = section === '' ? unquoteKey(key) : `${section}.${unquoteKey(key)}`;
      for (const [, innerKey = '', innerValue = ''] of (inline[1] ?? '').matchAll(/([A-Za-z0-9_-]+)\s*=\s*("[^"]*"|'[^']*')/g)) {
        settings.push({ section: table, key: innerKey, value: unquote(innerValue), line });
      }
      return;
    }
    lastKey = unquoteKey(key);
    settings.push({ section, key: lastKey, value: unquote(value), line });
  });
  return settings;
}

/** `${NAME}`, `${NAME-fallback}`, `${NAME:-fallback}` and `$NAME` of npm, Yarn and pip. An unset variable without a fallback makes the value unusable: ''. */
export function fillVariables(value: string, env: Readonly<Record<string, string>>): string {
  const variable = /\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}]*))?\??\}/g;
  const valueOf = (name: string, fallback: string | undefined): string | undefined => env[name] ?? fallback;
  if ([...value.matchAll(variable)].some(([, name = '', fallback]) => valueOf(name, fallback) === undefined)) return '';
  return value.replaceAll(variable, (_all, name: string, fallback: string | undefined) => valueOf(name, fallback) ?? '');
}

function unquote(value: string): string {
  const quoted = /^(["'])(.*?)\1\s*(?:[#;].*)?$/.exec(value);
  return quoted === null ? value.replace(/\s+[#;].*$/, '').trim() : (quoted[2] ?? '');
}

function unquoteKey(key: string): string {
  return key.trim().replaceAll(/["']/g, '');
}
