import type Database from 'better-sqlite3';
import { openDatabase } from './database.host.ts';
import { explainSqliteError } from './sqlite-errors.ts';

/** Moments of a write at which a process may be killed, and `waiting`: another process keeps a new store busy. Tests are told of each. */
export type WritePoint = 'begin' | 'rows' | 'commit' | 'committed' | 'waiting';

export interface StoreOptions {
  /** For fault tests. */
  readonly announce?: (point: WritePoint) => void;
}

/** Milliseconds since the epoch. */
export type Clock = () => number;

/** One open database with statements prepared when first used. Every error leaves it explained (see sqlite-errors.ts). */
export class Connection {
  readonly file: string;
  readonly warnings: readonly string[];
  readonly clock: Clock;
  readonly #db: Database.Database;
  readonly #statements = new Map<string, Database.Statement>();
  readonly #announce: (point: WritePoint) => void;

  constructor(stateDirectory: string, clock: Clock, options: StoreOptions) {
    const announce = options.announce ?? (() => undefined);
    const opened = openDatabase(stateDirectory, () => {
      announce('waiting');
    });
    this.#db = opened.db;
    this.file = opened.file;
    this.warnings = opened.warnings;
    this.clock = clock;
    this.#announce = announce;
  }

  /** The first row, or undefined. */
  get(sql: string, ...values: readonly unknown[]): unknown {
    return this.#explained(() => this.#statement(sql).get(...values));
  }

  all(sql: string, ...values: readonly unknown[]): readonly unknown[] {
    return this.#explained(() => this.#statement(sql).all(...values));
  }

  /** Number of rows changed. */
  run(sql: string, ...values: readonly unknown[]): number {
    return this.#explained(() => this.#statement(sql).run(...values).changes);
  }

  /** One IMMEDIATE transaction: everything in `body` or nothing; on disk when this returns. */
  write<T>(body: () => T): T {
    this.#announce('begin');
    const result = this.#explained(() =>
      this.#db
        .transaction(() => {
          const value = body();
          this.#announce('commit');
          return value;
        })
        .immediate(),
    );
    this.#announce('committed');
    return result;
  }

  /** Several reads of one moment. */
  snapshot<T>(body: () => T): T {
    return this.#explained(() => this.#db.transaction(body).deferred());
  }

  announce(point: WritePoint): void {
    this.#announce(point);
  }

  close(): void {
    this.#statements.clear();
    this.#explained(() => this.#db.close());
  }

  #statement(sql: string): Database.Statement {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const statement = this.#db.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }

  #explained<T>(body: () => T): T {
    try {
      return body();
    } catch (error) {
      throw explainSqliteError(error, this.file);
    }
  }
}
