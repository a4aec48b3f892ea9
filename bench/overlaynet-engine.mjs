// The engine of bench/overlaynet.mjs: answers good.test at the first synthetic address of a pool on loopback, on the ports that it is given.
import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import { promisify } from 'node:util';
import { startOverlayNet } from '../src/overlaynet/overlaynet.host.ts';
import { encodeQuestion } from './overlaynet-question.mjs';

const ports = JSON.parse(process.argv[2]);
const origin = { layer: 'flag', name: '--allow-net' };
const nameserver = createSocket('udp4');
nameserver.on('message', (message, sender) => nameserver.send(encodeQuestion.answer(message), sender.port, sender.address));
await new Promise((resolve) => nameserver.bind(0, '127.0.0.1', resolve));

const listeners = [];
for (const port of ports) {
  const server = createServer();
  await new Promise((resolve) => server.listen({ host: '127.64.1.0', port, backlog: 4096 }, resolve));
  listeners.push({ kind: 'tcp', family: 4, port, server });
}
const resolver = createSocket('udp4');
await new Promise((resolve) => resolver.bind(0, '127.0.0.1', resolve));
listeners.push({ kind: 'dns-udp', family: 4, socket: resolver });

await startOverlayNet({
  rules: { allow: [{ kind: 'name', host: 'good.test', ports, private: true, origin }], deny: [], defaultAllow: false },
  listeners,
  upstream: { nameservers: [`127.0.0.1:${nameserver.address().port}`] },
  synthetic: { v4: '127.64.0.0/16', v6: '2001:2::/48' },
  clock: Date.now,
  onEvent: () => undefined,
});
const asking = createSocket('udp4');
const answered = new Promise((resolve) => asking.once('message', resolve));
await promisify(asking.send.bind(asking))(encodeQuestion('good.test'), resolver.address().port, '127.0.0.1');
await answered;
asking.close();
process.on('disconnect', () => process.exit(0));
process.send('ready');
