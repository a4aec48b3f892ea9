/** What an import says: JSON texts one after another, of which `status` holds the id and `error` a failure. Pure. */
export function parseImportAnswer(text: string): { readonly id: string | undefined; readonly error: string | undefined } {
  let id: string | undefined;
  let error: string | undefined;
  for (const line of text.split(/\r?\n/)) {
    if (line.trim() === '') continue;
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch {
      continue;
    }
    if (typeof value !== 'object' || value === null) continue;
    if ('error' in value && typeof value.error === 'string') error = value.error;
    if ('status' in value && typeof value.status === 'string' && /^sha256:[0-9a-f]{64}$/.test(value.status)) id = value.status;
  }
  return error === undefined ? { id, error } : { id: undefined, error };
}
