import type { ErrorObject } from 'ajv';
import type { JsonValue } from '../core/json.ts';

/** Returns what is wrong, in words; empty when the value fits. */
export type SchemaValidator = (value: JsonValue) => readonly string[];

/** Compiles a draft 2020-12 schema. ajv is loaded here, when first needed: it costs more than a whole run is given. */
export async function compileSchema(schema: object): Promise<SchemaValidator> {
  const { Ajv2020 } = await import('ajv/dist/2020.js');
  const validate = new Ajv2020({ strict: true, allErrors: false, allowUnionTypes: true }).compile(schema);
  return (value) => (validate(value) ? [] : (validate.errors ?? []).map(describeFault));
}

function describeFault(error: ErrorObject): string {
  const place = error.instancePath === '' ? 'the document' : error.instancePath.slice(1);
  const detail =
    error.keyword === 'additionalProperties' ? `has the unknown key ${JSON.stringify(error.params.additionalProperty)}` : (error.message ?? error.keyword);
  return `${place} ${detail}`;
}
