import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { DockerLab, levelsWithout, rootAndOrdinary, type DockerReport } from '../support/docker-job.host.ts';
import { engineClient, engineEnvironment, ensureImage, imageSaying } from '../support/docker-lab.host.ts';

const environment = engineEnvironment();
const sh = (script: string): readonly [string, ...string[]] => ['/bin/sh', '-c', script];

/** Each attempt prints `name ok` when it did what it must not. */
const ATTEMPTS: Readonly<Record<string, string>> = {
  docker_sock: 'for s in /var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock; do test -e $s && echo x; done | grep -q x',
  cgroup_write: 'for f in $(find /sys/fs/cgroup -type f 2>/dev/null); do (echo $$ > $f) 2>/dev/null && echo x; done | grep -q x',
  cgroup_mount: 'mkdir -p /tmp/cg && mount -t cgroup -o memory cgroup /tmp/cg 2>/dev/null',
  cgroup2_mount: 'mkdir -p /tmp/cg2 && mount -t cgroup2 cgroup2 /tmp/cg2 2>/dev/null',
  core_pattern: '(echo "|/tmp/x" > /proc/sys/kernel/core_pattern) 2>/dev/null',
  sysctl: '(cat /proc/sys/vm/overcommit_memory > /proc/sys/vm/overcommit_memory) 2>/dev/null',
  sysrq: '(echo h > /proc/sysrq-trigger) 2>/dev/null',
  uevent: '(echo x > /sys/kernel/uevent_helper) 2>/dev/null',
  device_node: 'mknod /tmp/disk b 254 0 2>/dev/null',
  memory_node: 'mknod /tmp/mem c 1 1 2>/dev/null',
  block_devices: 'find /dev -type b | grep -q .',
  kcore: 'test -s /proc/kcore && head -c 1 /proc/kcore > /dev/null 2>&1',
  remount_root: 'mount -o remount,rw / 2>/dev/null',
  remount_proc: 'mount -o remount,rw /proc/sys 2>/dev/null',
  unmount_mask: 'umount /proc/keys 2>/dev/null || umount /sys/firmware 2>/dev/null',
  user_namespace: 'unshare -U true 2>/dev/null',
  mount_namespace: 'unshare -m true 2>/dev/null',
  host_pid_namespace: 'nsenter -t 1 -m true 2>/dev/null',
  write_shim: '(echo x >> /.proofrun/shim) 2>/dev/null',
  write_shim_exe: '(echo x >> /proc/1/exe) 2>/dev/null',
  replace_shim: 'rm -f /.proofrun/shim 2>/dev/null || mv /.proofrun/shim /.proofrun/other 2>/dev/null',
  init_memory: 'dd if=/proc/1/mem of=/dev/null bs=1 count=1 2>/dev/null',
  // Behind the rights of ptrace(2), as are the descriptors of another process.
  init_paths: 'readlink /proc/1/cwd > /dev/null 2>&1',
  control_socket: "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); exit !connect(S, sockaddr_un(q(/.proofrun/control)))' 2>/dev/null",
  write_root: '(echo x > /made) 2>/dev/null',
  write_etc: '(echo x > /etc/made) 2>/dev/null',
  set_uid: "perl -e '$< = 0; $> = 0; exit !($> == 0 && $ENV{START} != 0)' 2>/dev/null",
  set_group: "perl -e '$( = 12345; exit !($( == 12345)' 2>/dev/null",
  keyctl: "perl -e 'exit(syscall(250, 0, -3, 0) < 0)' 2>/dev/null",
};

const SCRIPT = Object.entries(ATTEMPTS)
  .map(([name, attempt]) => `if { ${attempt}; }; then echo "${name} ok"; else echo "${name} refused"; fi`)
  .join('\n');

function read(report: DockerReport): Readonly<Record<string, string>> {
  return Object.fromEntries(
    report.stdout
      .trim()
      .split('\n')
      .map((line) => line.split(' ') as [string, string]),
  );
}

describe.skipIf(typeof environment === 'string')('out of a container', () => {
  let own: DockerLab;
  let other: DockerLab;
  beforeAll(async () => {
    await ensureImage(engineClient());
    const { root, ordinary } = rootAndOrdinary();
    own = new DockerLab(root);
    other = new DockerLab(ordinary);
  });

  test.each(['root', 'user'] as const)('every attempt is refused, workspace of %s; the control arm is a privileged container', async (owner) => {
    const lab = owner === 'root' ? own : other;
    const report = await lab.run(sh(SCRIPT), { env: { START: String(lab.owner.uid) } });
    expect(report.stderr).toBe('');
    expect(read(report)).toEqual(Object.fromEntries(Object.keys(ATTEMPTS).map((name) => [name, 'refused'])));
    expect(report.levels).toEqual(levelsWithout([]));
  });

  test('control arm: without our rules the same script succeeds with many of them', async () => {
    const docker = engineClient();
    const container = await docker.createContainer({
      Image: 'proofrun-base:latest',
      Cmd: ['/bin/sh', '-c', SCRIPT.replace(/^.*(sysrq|core_pattern|sysctl|cgroup_write|uevent).*$/gm, '')],
      NetworkDisabled: true,
      HostConfig: { CapAdd: ['SYS_ADMIN', 'MKNOD'], SecurityOpt: ['seccomp=unconfined'] },
    });
    try {
      await container.start();
      await container.wait();
      const logs = (await container.logs({ stdout: true })).toString('latin1');
      for (const name of ['device_node', 'user_namespace', 'mount_namespace', 'write_root', 'write_etc', 'init_paths', 'keyctl', 'set_group']) {
        expect(logs).toContain(`${name} ok`);
      }
    } finally {
      await container.remove({ force: true });
    }
  });

  test('output that looks like the shim is output: nothing of it is evidence', async () => {
    // Frames of the shim's protocol: a fact, a probe, an end.
    const frame = (type: string, body: string): string => {
      const head = Buffer.alloc(4);
      head.writeUInt32LE(1 + body.length);
      return head.toString('latin1') + type + body;
    };
    const forged = frame('F', 'status\0/proc/self/status\0CapEff:\tffff\n') + frame('T', '\0'.repeat(8)) + frame('D', '\0'.repeat(16));
    const octal = [...Buffer.from(forged, 'latin1')].map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('');
    const report = await own.run(sh(`printf '${octal}'; printf '${octal}' >&2; exit 4`));
    expect([report.stdout, report.stderr]).toEqual([forged, forged]);
    expect(report.ending).toEqual({ kind: 'exit', code: 4 });
    expect(report.levels).toEqual(levelsWithout([]));
  });

  test('a job that kills all it can reach ends only itself', async () => {
    const report = await own.run(sh('kill -9 -1; kill -9 1; kill -STOP 1; echo still'));
    expect(report.stdout).toBe('still\n');
    expect(report.ending).toEqual({ kind: 'exit', code: 0 });
    expect(report.levels).toEqual(levelsWithout([]));
  });

  test('the layer of one job is seen from no other container of ours', async () => {
    let seen: DockerReport | undefined;
    await own.run(sh('echo secret > layered; echo ready; sleep 0.2'), {
      during: async (stdout) => {
        await new Promise((resolve) => stdout.once('data', resolve));
        // While the first one lives, with a grant of everything below its directories.
        seen = await other.run(sh(`ls -laR ${own.base} /var/lib/docker 2>&1; find / -xdev -name layered 2>/dev/null; true`), { allowRead: [own.workspace] });
      },
    });
    expect(seen?.stdout).not.toContain('layered');
    expect(seen?.levels).toEqual(levelsWithout([]));
  });

  test('memory: the kernel ended it, and that is told from a kill', async () => {
    const eat = 'my @a; push @a, "x" x 1048576 for 1..400; print "done"';
    const report = await own.run(['/usr/bin/perl', '-e', eat], { limits: { memoryBytes: 64 << 20, swapBytes: 0 } });
    expect([report.ending, report.closing.limitHits]).toEqual([{ kind: 'limit', limit: 'memory' }, ['memory']]);
    const killed = await own.run(sh('kill -9 $$'), { limits: { memoryBytes: 64 << 20 } });
    expect([killed.ending, killed.closing.limitHits]).toEqual([{ kind: 'signal', signal: 'SIGKILL', number: 9 }, []]);
  });

  test('a fork bomb meets the limit of the tree', async () => {
    const report = await own.run(
      ['/usr/bin/perl', '-e', 'my $n = 0; while (1) { my $p = fork; last unless defined $p; if (!$p) { sleep 60 } $n++ } print $n'],
      { limits: { processes: 20 } },
    );
    expect([Number(report.stdout) < 20, report.closing.limitHits]).toEqual([true, ['processes']]);
  });

  test('an odd place for a mount is refused before a container is made', async () => {
    const { root } = rootAndOrdinary();
    for (const name of ['a,upperdir=x', 'a:b', 'a\\b']) {
      const lab = new DockerLab(root);
      mkdirSync(join(lab.base, name));
      Object.assign(lab, { workspace: join(lab.base, name) });
      await expect(lab.run(['/bin/true'])).rejects.toMatchObject({ code: 'ERR_LAUNCH', message: expect.stringContaining("can't stage") as string });
    }
  });

  test.each([['/proc'], ['/sys/fs'], ['/dev/shm'], ['/.proofrun'], ['/']])('a direct share of %s is refused', async (path) => {
    await expect(own.run(['/bin/true'], { direct: [path] })).rejects.toMatchObject({ code: 'ERR_LAUNCH' });
  });

  test('an ordinary engine user leaves no file of root behind', async () => {
    const report = await other.run(sh('mkdir -p d/e; echo x > d/e/f; rm -rf d; echo kept > kept; mkdir -p "$HOME/deep/er"; echo y > "$HOME/deep/er/z"'));
    expect(report.levels).toEqual(levelsWithout([]));
    const { stdout } = spawnSync(
      'find',
      [report.scratch, join(report.scratch, '..', 'work'), report.upper, '-uid', '0', '-not', '-name', 'scratch', '-path', '*work/*'],
      { encoding: 'utf8' },
    );
    expect(stdout).toBe('');
    expect(readFileSync(join(report.upper, 'kept'), 'utf8')).toBe('kept\n');
    expect(report.closing.discarded).toMatchObject({ files: 1 });
  });
});

describe.skipIf(typeof environment === 'string')('an image that is hostile', () => {
  let lab: DockerLab;
  beforeAll(async () => {
    await ensureImage(engineClient());
    lab = new DockerLab(rootAndOrdinary().ordinary);
  });

  test('its ENTRYPOINT, CMD, USER, WORKDIR, ENV, VOLUME, HEALTHCHECK, ONBUILD and LABEL change nothing', async () => {
    const docker = engineClient();
    const image = await imageSaying(docker, `hostile-${randomBytes(4).toString('hex')}`, [
      'ENTRYPOINT ["/bin/sh","-c","echo taken over"]',
      'CMD ["--version"]',
      'USER root',
      'WORKDIR /nowhere',
      'ENV LD_PRELOAD=/evil.so GLIBC_TUNABLES=glibc.malloc.check=3 PATH=/evil HOME=/evil',
      'VOLUME /data',
      'VOLUME /usr/evil',
      'HEALTHCHECK CMD touch /tmp/healthy',
      'ONBUILD RUN touch /onbuild',
      'LABEL io.proofrun.run=forged io.proofrun.owner=1.1.0',
    ]);
    const report = await lab.run(sh('id -u; pwd; env | sort; ls -A /data /usr/evil; echo x > /data/kept'), { image });
    expect(report.levels).toEqual(levelsWithout([]));
    const lines = report.stdout.split('\n');
    expect(lines.slice(0, 2)).toEqual([String(lab.owner.uid), lab.workspace]);
    expect(report.stdout).not.toMatch(/evil\.so|GLIBC_TUNABLES|PATH=\/evil/);
    expect(report.ending).toEqual({ kind: 'exit', code: 0 });
    // Other tests have volumes there at the same time, each with the label of its run: one that the image declared would have none.
    const volumes: { readonly Volumes: readonly { readonly Labels: Readonly<Record<string, string>> | null }[] | null } = await engineClient().listVolumes();
    expect((volumes.Volumes ?? []).filter(({ Labels }) => Labels?.['io.proofrun.run'] === undefined)).toEqual([]);
  });

  test("its shell and its loader lie, and every receipt is still the kernel's", async () => {
    const docker = engineClient();
    const tag = `lying-${randomBytes(4).toString('hex')}`;
    const maker = await docker.createContainer({
      Image: 'proofrun-base:latest',
      Cmd: ['/bin/sh', '-c', 'cp /bin/true /tmp/true; for f in /bin/sh /bin/dash /bin/bash /bin/cat /lib64/ld-linux-x86-64.so.2; do rm -f $f; done'],
      NetworkDisabled: true,
    });
    await maker.start();
    await maker.wait();
    await docker.getContainer(maker.id).commit({ repo: tag, tag: 'latest' });
    await maker.remove({ force: true });
    const report = await lab.run(['/bin/sh', '-c', 'true'], { image: `${tag}:latest` });
    // The gate opened on receipts of the static shim; the command's own loader is gone.
    expect(report.decision).toEqual({ kind: 'release' });
    expect(report.ending).toEqual({ kind: 'not_found', errno: 'ENOENT' });
    expect(report.levels).toEqual(levelsWithout([]));
  });

  test('links where the run mounts lead nowhere', async () => {
    const docker = engineClient();
    const tag = `links-${randomBytes(4).toString('hex')}`;
    const target = `/tmp/proofrun-link-${randomBytes(4).toString('hex')}`;
    const maker = await docker.createContainer({
      Image: 'proofrun-base:latest',
      Cmd: ['/bin/sh', '-c', `ln -s ${target} /.proofrun; rm -rf /var/tmp; ln -s ${target} /var/tmp`],
      NetworkDisabled: true,
    });
    await maker.start();
    await maker.wait();
    await docker.getContainer(maker.id).commit({ repo: tag, tag: 'latest' });
    await maker.remove({ force: true });
    const outcome = await lab.run(sh('echo ran'), { image: `${tag}:latest` }).then(
      (report) => report.decision.kind,
      (error: unknown) => (error as { readonly code?: string }).code,
    );
    // Mounted elsewhere than planned is noticed; nothing of it is on the host.
    expect(['refuse', 'ERR_LAUNCH']).toContain(outcome);
    expect(existsSync(target)).toBe(false);
  });
});
