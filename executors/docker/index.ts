export { createDockerExecutor, type DockerExecutorOptions } from './executor.host.ts';
