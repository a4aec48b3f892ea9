// The far end of bench/network.mjs: small answers, and as many bytes as are asked for. Says its port on stdout.
import { createServer } from 'node:http';

const piece = Buffer.alloc(256 << 10, 'x');
const server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
  const bytes = Number(/bulk=([0-9]+)/.exec(request.url)?.[1] ?? 0);
  if (bytes === 0) return void response.end('x'.repeat(1024));
  response.writeHead(200, { 'content-length': bytes });
  let left = bytes;
  const more = () => {
    while (left > 0) {
      const part = left < piece.length ? piece.subarray(0, left) : piece;
      left -= part.length;
      if (!response.write(part)) return void response.once('drain', more);
    }
    response.end();
  };
  more();
});
server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () => console.log(server.address().port));
