export { buildImage, type BuiltImage } from './build-image.host.ts';
export { IMAGE_LABEL, parseImageName, parseLabel } from './image-name.ts';
export { openEngine } from './open-engine.host.ts';
