import dnsPacket from 'dns-packet';

/** A question for the address of a name. */
export function encodeQuestion(name) {
  return dnsPacket.encode({ type: 'query', id: 1, flags: dnsPacket.RECURSION_DESIRED, questions: [{ type: 'A', name }] });
}

/** Answers any question for an IPv4 address with loopback, and every other one with nothing. */
encodeQuestion.answer = (message) => {
  const { id, questions } = dnsPacket.decode(message);
  const [question] = questions;
  const answers = question.type === 'A' ? [{ type: 'A', name: question.name, ttl: 60, data: '127.0.0.1' }] : [];
  return dnsPacket.encode({ type: 'response', id, questions, answers });
};
