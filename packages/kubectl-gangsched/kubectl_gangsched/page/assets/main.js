document.body.append('gangsched');
