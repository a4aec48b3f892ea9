/** A value that JSON can carry. Keys on disk and in `--json` are snake_case. */
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject;
export interface JsonObject {
  readonly [key: string]: JsonValue;
}
