import type { Readable } from 'node:stream';

/** An image as an engine describes it. */
export interface EngineImage {
  /** `sha256:...`, the digest of its configuration: names this very image. */
  readonly id: string;
  readonly tags: readonly string[];
  readonly sizeBytes: number;
  readonly createdMs: number;
  readonly labels: Readonly<Record<string, string>>;
  /** `linux/amd64`. */
  readonly platform: string;
}

export interface ImportOptions {
  readonly repository: string;
  readonly tag: string;
  /** Dockerfile instructions for the configuration: `LABEL a=b`, `ENV PATH=/bin`. */
  readonly changes: readonly string[];
  readonly message: string;
  /** `linux/amd64`; undefined: the engine's own. */
  readonly platform: string | undefined;
}

/** The few calls of a container engine that transfers and image building need. Every call rejects with ERR_ENGINE. */
export interface EngineClient {
  /**
   * Unpacks a tar stream whose names begin with `path` (no slash before it) in the root of a container, so that they land in that directory:
   * engines refuse a relative symlink that leads above the directory in which they unpack. Where the container's root can't be written,
   * a container of the same image and the same volume stands in, which is never started. The stream is destroyed when this is done.
   */
  putTree(container: string, path: string, tar: Readable): Promise<void>;
  /** Unpacks a tar stream in a directory of a container, started or not. The stream is destroyed when this is done. */
  putArchive(container: string, path: string, tar: Readable): Promise<void>;
  /** A directory of a container, started or not, as a tar stream. The caller destroys it. */
  getArchive(container: string, path: string): Promise<Readable>;
  /** Makes an image of a root filesystem. Resolves to its id. The stream is destroyed when this is done. */
  importImage(tar: Readable, options: ImportOptions): Promise<string>;
  /** Undefined: there is none of this name or id. */
  inspectImage(name: string): Promise<EngineImage | undefined>;
  /** Images that carry a label, whatever its value. */
  listImages(label: string): Promise<readonly EngineImage[]>;
}
