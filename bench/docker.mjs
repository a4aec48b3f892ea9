import { spawnSync } from 'node:child_process';
import { interleave, rows } from './measure.mjs';

const IMAGE = 'proofrun-base:latest';

/** `true` in a container through the command line against `docker run --rm`. Undefined where no engine has the image. */
export async function startOnDocker({ job, workspace, env, rounds }) {
  if (spawnSync('docker', ['image', 'inspect', IMAGE], { env, stdio: 'ignore' }).status !== 0) return undefined;
  const arms = [
    { name: 'docker run --rm true', argv: ['docker', 'run', '--rm', '--network', 'none', IMAGE, 'true'] },
    { name: 'job run --executor docker true', argv: [...job, 'run', '--executor', 'docker', '--safe', '-q', '--', 'true'] },
  ].map((arm) => ({ cwd: workspace, env, ...arm }));
  return rows(await interleave(arms, rounds), 'docker run --rm true');
}
