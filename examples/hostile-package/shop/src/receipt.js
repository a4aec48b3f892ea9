import { leftAlign } from 'left-align';

/** One line of a receipt: the name to the left in 20 columns, the price in cents to the right in 8. */
export function receiptLine(name, cents) {
  return leftAlign(name, 20) + (cents / 100).toFixed(2).padStart(8);
}
