import type { Readable } from 'node:stream';

/** The caller's terminal for the time of a command: raw, its size followed, restored at the end. */
export interface CallerTerminal {
  readonly size: { readonly rows: number; readonly columns: number };
  show(output: Readable): void;
  begin(resize: (rows: number, columns: number) => void, go: () => void): void;
  /** The command stopped (Ctrl-Z): the caller's own job stops, and goes on when its shell says so. */
  stop(): void;
  end(): void;
}

export function callerTerminal(): CallerTerminal {
  const { stdin, stdout } = process;
  let resize: ((rows: number, columns: number) => void) | undefined;
  let go: (() => void) | undefined;
  let raw = false;
  const follow = (): void => {
    resize?.(stdout.rows, stdout.columns);
  };
  const setRaw = (on: boolean): void => {
    if (stdin.isTTY) stdin.setRawMode(on);
    raw = on;
  };
  const goOn = (): void => {
    setRaw(true);
    follow();
    go?.();
  };
  return {
    size: { rows: stdout.rows, columns: stdout.columns },
    show: (output) => {
      output.on('data', (chunk: Buffer) => {
        if (stdout.write(chunk)) return;
        output.pause();
        stdout.once('drain', () => {
          output.resume();
        });
      });
    },
    begin: (onResize, onGo) => {
      resize = onResize;
      go = onGo;
      setRaw(true);
      stdout.on('resize', follow);
      follow();
    },
    stop: () => {
      setRaw(false);
      process.once('SIGCONT', goOn);
      // The whole process group, as a terminal's Ctrl-Z would.
      process.kill(0, 'SIGSTOP');
    },
    end: () => {
      process.removeListener('SIGCONT', goOn);
      stdout.removeListener('resize', follow);
      if (raw) setRaw(false);
      stdin.pause();
    },
  };
}
