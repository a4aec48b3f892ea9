/**
 * A lint rule: outside executors/ nothing compares an executor's id with a string; capabilities are asked instead.
 * It looks at types, so that `root === 'host'` of another union passes: only a value whose type holds every executor id counts.
 */
export function executorIdRule(ids) {
  return {
    meta: { type: 'problem', schema: [], messages: { compared: "compares an executor's id with '{{id}}': ask its capabilities" } },
    create(context) {
      const services = context.sourceCode.parserServices;
      const isId = (node) => node?.type === 'Literal' && ids.includes(node.value);
      const holdsIds = (node) => {
        const type = services.getTypeAtLocation(node);
        const values = new Set((type.isUnion() ? type.types : [type]).map((part) => (part.isStringLiteral() ? part.value : undefined)));
        return ids.every((id) => values.has(id));
      };
      const report = (literal, other) => {
        if (isId(literal) && holdsIds(other)) {
          context.report({ node: literal, messageId: 'compared', data: { id: literal.value } });
        }
      };
      return {
        BinaryExpression(node) {
          if (['===', '!==', '==', '!='].includes(node.operator)) {
            report(node.left, node.right);
            report(node.right, node.left);
          }
        },
        SwitchCase(node) {
          report(node.test, node.parent.discriminant);
        },
      };
    },
  };
}
