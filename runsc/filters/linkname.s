// This empty file lets rules be declared without a body.
