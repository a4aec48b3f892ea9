/** Lines of at most `width` columns, broken at spaces; a longer word keeps a line of its own. Counts code points, so only for our own text. */
export function wrapText(text: string, width: number, indent = ''): readonly string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width - indent.length) {
      lines.push(indent + line);
      line = word;
    } else {
      line = line === '' ? word : `${line} ${word}`;
    }
  }
  lines.push(indent + line);
  return lines;
}
