exports.leftAlign = (text, width) => String(text).padEnd(width);
