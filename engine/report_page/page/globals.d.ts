// What browsers have and the types of TypeScript 4.8 do not know.
declare class DecompressionStream {
  constructor(format: string);
  readable: ReadableStream;
  writable: WritableStream;
}
