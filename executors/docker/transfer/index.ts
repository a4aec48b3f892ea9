export { uploadTree, type Upload, type UploadInput } from './upload.host.ts';
export { downloadTree, type Download, type DownloadInput } from './download.host.ts';
export { formatManifest, parseManifest, type Manifest } from './manifest.ts';
export { DEFAULT_LIMITS, type TransferLimits } from './limits.ts';
export { createWorkspaceTransfer, type TransferNotes, type TransferSite, type WorkspaceTransfer } from './workspace-transfer.host.ts';
