import type { Dimension } from '../core/dimension.ts';
import type { EffectiveJob, Origin } from '../core/job.ts';
import { decideHost, decideRead, decideWrite } from './decide.ts';
import { BASE_ENVIRONMENT, compileNames } from './environment.ts';
import { formatHostRule } from './host-rule.ts';
import { formatOrigin } from './rules.ts';
import { quoteWord } from './workspace.ts';

export { explainJob } from './explain-job.ts';

/** One decision, with the line that makes it and what would change it. */
export interface Explanation {
  readonly dimension: Dimension;
  /** What is asked about: a path, `host:port`, a variable, a program, a limit. */
  readonly subject: string;
  readonly outcome: 'allowed' | 'denied' | 'staged' | 'private' | 'depends';
  /** In words, a whole clause. */
  readonly reason: string;
  /** Where the deciding rule or default is written. Absent: nobody wrote one, it is how the mode works. */
  readonly origin?: Origin;
  /** The rule as written there. */
  readonly rule?: string;
  /** The flag or line that would allow it. Absent: it is allowed, or nothing would. */
  readonly allowWith?: string;
}

/** Why a host can or can't be reached. */
export function explainHost(job: EffectiveJob, host: string, port: number): Explanation {
  const { network } = job.permissions;
  const subject = `${host}:${String(port)}`;
  const flag = `--allow-net ${quoteWord(port === 443 || port === 80 ? host : subject)}`;
  const base = { dimension: 'network' as const, subject };
  const decision = decideHost(network, host, port);
  switch (decision.by) {
    case 'name':
      return { ...base, outcome: 'denied', reason: decision.reason };
    case 'rule':
      if (decision.allowed) {
        return { ...base, outcome: 'allowed', reason: 'a rule allows it', origin: decision.rule.origin, rule: formatHostRule(decision.rule, 'allow') };
      }
      return {
        ...base,
        outcome: 'denied',
        reason: 'a rule denies it, and a denial beats every grant',
        origin: decision.rule.origin,
        rule: formatHostRule(decision.rule, 'deny'),
        allowWith: `take ${formatOrigin(decision.rule.origin)} out`,
      };
    case 'default': {
      const { defaultOrigin } = network;
      const written = defaultOrigin === undefined ? {} : { origin: defaultOrigin, rule: `default_action: ${decision.allowed ? 'allow' : 'deny'}` };
      if (decision.allowed) {
        return {
          ...base,
          outcome: 'allowed',
          reason: defaultOrigin === undefined ? 'nothing restricts the network' : 'no rule names it, and the default allows',
          ...written,
        };
      }
      const closed = defaultOrigin?.name === '--no-net';
      return {
        ...base,
        outcome: 'denied',
        reason: 'no rule allows it',
        ...written,
        ...(closed ? { rule: '--no-net', allowWith: `leave --no-net out, and ${flag}` } : { allowWith: flag }),
      };
    }
  }
}

/** Why a path can or can't be read. Absolute. */
export function explainRead(job: EffectiveJob, path: string): Explanation {
  const { fileRead } = job.permissions;
  const base = { dimension: 'file_read' as const, subject: path };
  const flag = `--allow-read ${quoteWord(path)}`;
  const decision = decideRead(job, path);
  switch (decision.decision) {
    case 'visible':
      switch (decision.why) {
        case 'workspace':
          return { ...base, outcome: 'allowed', reason: 'it lies in the workspace' };
        case 'whole system':
          return { ...base, outcome: 'allowed', reason: 'nothing restricts reading' };
        case 'home copy':
          return { ...base, outcome: 'allowed', reason: 'a profile names it: the job sees a copy of its own', ...written(decision.rule) };
        case 'rule':
          return { ...base, outcome: 'allowed', reason: 'a rule allows it', ...written(decision.rule) };
      }
      break;
    case 'hidden':
      switch (decision.why) {
        case 'rule':
          return {
            ...base,
            outcome: 'denied',
            reason: 'a rule hides it, and a denial beats every grant',
            ...written(decision.rule),
            allowWith:
              decision.rule?.origin.layer === 'built-in' ? flag : `take ${decision.rule === undefined ? 'the rule' : formatOrigin(decision.rule.origin)} out`,
          };
        case 'secret name':
          return {
            ...base,
            outcome: 'denied',
            reason: 'files of this name hold secrets, and are hidden under --safe',
            ...written(decision.rule),
            allowWith: flag,
          };
        case 'if it holds a private key':
          return { ...base, outcome: 'depends', reason: 'it is hidden when it holds a private key', ...written(decision.rule), allowWith: flag };
        case 'private home':
          return {
            ...base,
            outcome: 'denied',
            reason: 'HOME is a fresh private directory',
            ...(fileRead.defaultOrigin === undefined ? {} : { origin: fileRead.defaultOrigin, rule: 'default_action: deny' }),
            allowWith: flag,
          };
      }
      break;
    case 'projected':
      return {
        ...base,
        outcome: 'depends',
        reason: 'it can be read when it belongs to the system or to a toolchain that PATH reaches',
        ...(fileRead.defaultOrigin === undefined ? {} : { origin: fileRead.defaultOrigin, rule: 'default_action: deny' }),
        allowWith: flag,
      };
  }
}

/** Where a write to a path goes. Absolute. */
export function explainWrite(job: EffectiveJob, path: string): Explanation {
  const base = { dimension: 'file_write' as const, subject: path };
  const flag = `--write-direct ${quoteWord(path)}`;
  const decision = decideWrite(job, path);
  switch (decision.decision) {
    case 'staged':
      return { ...base, outcome: 'staged', reason: 'changes of the workspace are staged until you apply them' };
    case 'direct':
      return { ...base, outcome: 'allowed', reason: 'it is written without a stage', ...written(decision.rule) };
    case 'private':
      return {
        ...base,
        outcome: 'private',
        reason: decision.why === 'home' ? 'writes to HOME are private and thrown away' : 'the job has a temporary directory of its own',
      };
    case 'denied': {
      if (decision.why === 'read-only') return { ...base, outcome: 'denied', reason: 'only what is staged or shared can be written', allowWith: flag };
      const out =
        decision.rule === undefined
          ? {}
          : {
              allowWith:
                decision.why === 'hidden' && decision.rule.origin.layer === 'built-in'
                  ? `--allow-read ${quoteWord(path)}`
                  : `take ${formatOrigin(decision.rule.origin)} out`,
            };
      return {
        ...base,
        outcome: 'denied',
        reason: decision.why === 'hidden' ? 'it is hidden, and hidden is also unwritable' : 'a rule denies it',
        ...written(decision.rule),
        ...out,
      };
    }
  }
}

/** Whether a variable reaches the job. */
export function explainEnv(job: EffectiveJob, name: string): Explanation {
  const { credentials } = job.permissions;
  const base = { dimension: 'credentials' as const, subject: name };
  const { defaultOrigin } = credentials;
  const secret = credentials.secrets.find((one) => one.name === name);
  if (secret?.inject !== undefined) {
    return { ...base, outcome: 'private', reason: `it is added to requests to ${secret.inject.host} and never enters the job`, origin: secret.origin };
  }
  if (Object.hasOwn(credentials.environment, name)) {
    const reason =
      secret !== undefined
        ? 'a secret of this name enters the job'
        : defaultOrigin === undefined
          ? 'the whole environment passes'
          : compileNames(BASE_ENVIRONMENT)(name)
            ? 'it belongs to the base set, which carries no right'
            : 'it is passed or set by name';
    return { ...base, outcome: 'allowed', reason, ...(secret === undefined ? {} : { origin: secret.origin }) };
  }
  if (defaultOrigin === undefined) return { ...base, outcome: 'denied', reason: 'it is not set', allowWith: `-e ${name}=VALUE` };
  return {
    ...base,
    outcome: 'denied',
    reason: 'only the base set and what is named passes',
    origin: defaultOrigin,
    rule: 'default_action: deny',
    allowWith: `-e ${name}`,
  };
}

/** Whether a program may be started by the command. */
export function explainProgram(job: EffectiveJob, program: string): Explanation {
  const { subprocess } = job.permissions;
  const base = { dimension: 'subprocess' as const, subject: program };
  const origin =
    subprocess.defaultOrigin === undefined
      ? {}
      : { origin: subprocess.defaultOrigin, rule: `default_action: ${subprocess.kind === 'contained' ? 'allow' : 'deny'}` };
  if (subprocess.kind === 'contained') return { ...base, outcome: 'allowed', reason: 'any program runs, in a process tree of its own', ...origin };
  if (subprocess.allow.includes(program)) return { ...base, outcome: 'allowed', reason: 'the list of programs names it', ...origin };
  return {
    ...base,
    outcome: 'denied',
    reason: subprocess.kind === 'none' ? 'no program beyond the command itself' : 'the list of programs does not name it',
    ...origin,
    allowWith: 'a line under permissions.subprocess.allow of the job file',
  };
}

function written(rule: { readonly pattern: string; readonly origin: Origin } | undefined): Pick<Explanation, 'origin' | 'rule'> {
  return rule === undefined ? {} : { origin: rule.origin, rule: rule.pattern };
}
