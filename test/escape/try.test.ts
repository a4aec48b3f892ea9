import { afterAll, expect, test } from 'vitest';
import { AttackLab } from '../support/native-attack.host.ts';
import { describeUsers } from '../support/users.host.ts';
describeUsers('try', (user) => {
  const lab = new AttackLab(user);
  afterAll(() => lab.dispose());
  const at1 = ['open', 'r', '/proc/1/exe', 'rw', '/proc/1/exe', 'r', '/proc/1/fd', 'r', '/proc/1/root', 'r', '/proc/1/environ', 'r', '/proc/1/cwd','r','/proc/1/fdinfo', 'r', '/proc/1/map_files', 'w', '/proc/1/oom_score_adj'];
  const all = async (o: object) => {
    for (const words of [['memory', '1'], ['trace', '1'], ['write-memory', '1'], at1]) {
      const r = await lab.inside(words, o);
      console.log(user.kind, JSON.stringify(o), r.stdout, r.stderr, JSON.stringify(r.ending));
    }
  };
  test('x', async () => {
    await all({});
    await all({ mode: 'default', alterations: ['shim_is_init: PID 1 is dumpable', 'seccomp: no filter'] });
    await all({ mode: 'default', alterations: ['shim_is_init: bubblewrap stays PID 1', 'seccomp: no filter'] });
    const v = await lab.victim();
    for (const words of [['memory', '1'], ['trace', '1'], ['write-memory', '1'], at1]) console.log('outside', await lab.outside(words.map((w) => (w === '1' ? String(v.pid) : w.replace('/proc/1/', `/proc/${v.pid}/`)))));
    v.end();
    for (const words of [['kernel'], ['writable']]) {
      for (const o of [{}, { network: 'public' as const, mode: 'default' as const, root: 'host' as const}, { mode: 'default' as const, alterations: ['seccomp: no filter', 'capabilities: they are kept'] }, { mode: 'default' as const, alterations: ['kernel_files: /proc/sys is left as it is'] }]) {
        const r = await lab.inside(words, o);
        console.log(user.kind, JSON.stringify(o), r.stdout.length > 3000 ? r.stdout.slice(0, 3000) : r.stdout, r.stderr, JSON.stringify(r.ending));
      }
    }
    expect(1).toBe(1);
  });
});
