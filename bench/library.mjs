import { spawn } from 'node:child_process';
import { interleave, rows } from './measure.mjs';
import { BWRAP } from './start.mjs';

/** Jobs launched from one process by the library, recorded and with evidence, against as many launches of bubblewrap from it. */
export async function libraryLaunch({ createProofrun, scratch, workspace, env, jobs }) {
  const proofrun = await createProofrun({ stateDirectory: `${scratch}/library-state`, configDirectory: `${scratch}/config`, currentDirectory: workspace, env });
  try {
    const job = await proofrun.compose({ argv: ['true'], mode: 'safe', workspace });
    const library = async () => {
      const { ending } = await proofrun.run(job);
      if (ending.kind !== 'exit' || ending.code !== 0) {
        throw new Error(`the library's job ended with ${JSON.stringify(ending)}`);
      }
    };
    const times = await interleave(
      [
        { name: 'bwrap true', run: () => launch([...BWRAP, 'true'], workspace, env) },
        { name: 'library, --safe true', run: library },
      ],
      jobs,
    );
    return rows(times, 'bwrap true');
  } finally {
    await proofrun.close();
  }
}

function launch([program, ...words], cwd, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, words, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.resume();
    child.stderr.resume();
    child.on('error', reject);
    child.on('close', (code) => (code === 0 ? resolve() : reject(new Error(`${program} ended with ${code}`))));
  });
}
