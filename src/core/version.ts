/** Version of this package; test/unit/cli-main.test.ts holds it to package.json. */
export const VERSION = '0.1.0';
