import type { ExecutorCapabilities } from '../../src/core/plan.ts';
import { CONTROLS } from '../../src/core/plan.ts';
import type { Executor, LaunchRequest, Session, SessionClosing } from '../../src/executor/executor.ts';
import type { ExecutorEntry } from '../../src/executor/registry.ts';
import { createHostExecutor } from '../../executors/host/index.ts';

/** Says that it can do everything; what it does is up to the test. */
export const CLAIMS_EVERYTHING: ExecutorCapabilities = {
  executor: 'native',
  available: true,
  version: 'test',
  user: 'user',
  controls: CONTROLS,
  network: { public: true, deny: true, selective: true },
  subprocess: { contained: true, listed: true, none: true },
  limits: { memory: true, cpus: true, processes: true, swap: true },
  cooperative: [],
};

/**
 * A backend that claims every control and runs the command on the host: its sessions are real ones, changed by `change`. `launch`: instead
 * of a session.
 */
export function oddExecutor(
  behaviour: { readonly change?: (session: Session) => Session; readonly launch?: (request: LaunchRequest) => Promise<Session> } = {},
): ExecutorEntry {
  const host = createHostExecutor({ version: 'test' });
  const executor: Executor = {
    id: 'native',
    probe: () => Promise.resolve(CLAIMS_EVERYTHING),
    launch: async (request) => {
      if (behaviour.launch !== undefined) return await behaviour.launch(request);
      const session = await host.launch(request);
      return behaviour.change?.(session) ?? session;
    },
  };
  return { id: 'native', load: () => Promise.resolve(executor) };
}

/** A session that is another one but for some members. */
export function changed(session: Session, members: Partial<Session>): Session {
  return new Proxy(session, {
    get: (target, key) => {
      const own = (members as Readonly<Record<PropertyKey, unknown>>)[key];
      if (own !== undefined) return own;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** A closing with some members changed. */
export async function closingWith(session: Session, members: Partial<SessionClosing>): Promise<SessionClosing> {
  return { ...(await session.close()), ...members };
}
